"""Where a statement may stand instead."""

from __future__ import annotations

from memtrace.program import can_move, can_recompute, kept_longer, move_range, read_text, writes

TEXT = """def computation(x, w):
  # x: "cuda:0 f32[10]"
  # w: "cuda:0 f32[10]"
  t1 = torch.add(x, 1)  # t1: "cuda:0 f32[10]"
  t2 = torch.permute(t1, (0,))  # t2: "cuda:0 f32[10]"
  t3 = torch.mul(w, 2)  # t3: "cuda:0 f32[10]"
  t4 = torch.add_(t3, 1)  # t4: "cuda:0 f32[10]"
  t5 = torch.mul(t3, w)  # t5: "cuda:0 f32[10]"
  t6 = torch.nn.functional.dropout(x, 0.1)  # t6: "cuda:0 f32[10]"
  t7 = torch.rand_like(x)  # t7: "cuda:0 f32[10]"
  del t1
  t8 = torch.add(t2, t5)  # t8: "cuda:0 f32[10]"
  return {'output': (t8,), 'flat_args': [x, w], 'flat_output': (t8,)}, ((t2,), ())
"""


def test_between_what_it_reads_and_who_reads_it():
    program = read_text(TEXT)
    # t2 = permute(t1): not before t1 is made, not behind its first reader.
    assert move_range(program, 1) == range(1, 9)
    assert can_move(program, 1, 8)
    assert not can_move(program, 1, 9)


def test_an_input_whose_delete_is_passed_lives_longer():
    program = read_text(TEXT)
    assert kept_longer(program, 1, 8) == ("t1",)
    assert kept_longer(program, 1, 7) == ()


def test_what_is_written_in_place_is_not_passed():
    program = read_text(TEXT)
    assert writes(program, program.statements[3]) == {"t3"}
    assert not can_move(program, 4, 3)  # t5 reads t3 after it was written
    assert not can_move(program, 2, 4)


def test_random_operators_keep_their_order():
    program = read_text(TEXT)
    assert not can_move(program, 5, 7)
    assert can_move(program, 5, 6)


def test_a_gap_is_not_passed():
    program = read_text(TEXT.replace("  del t1\n", "  [... omitted ...]\n"))
    assert move_range(program, 1) == range(1, 8)


def test_recomputed_from_what_the_backward_has():
    program = read_text(TEXT)
    assert can_recompute(program, 0)  # x is an argument
    assert not can_recompute(program, 1)  # t1 is gone by then
    assert not can_recompute(program, 5)  # dropout draws anew
