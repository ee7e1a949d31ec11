#!/usr/bin/env bash
# Everything that must hold before a change lands: format, lint, types, tests.
#   bash scripts/test.sh          all of it
#   bash scripts/test.sh --fast   without the tests that record real runs
# Uses .venv beside pyproject.toml and makes it if it is not there.
set -euo pipefail
cd "$(dirname "$0")/.."
if [[ ! -x .venv/bin/python ]]; then
  python3 -m venv .venv
fi
.venv/bin/python -m pip install -q --disable-pip-version-check -e '.[record,test,hta]'
export PATH="$PWD/.venv/bin:$PATH"
ruff format --check .
ruff check .
mypy
if [[ ${1:-} == --fast ]]; then
  exec python -m pytest -m "not slow" -n auto
fi
exec python -m pytest -n auto
