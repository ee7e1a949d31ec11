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
# The tests of the page look at it in Chromium; without one they are skipped and say so.
if ! command -v chromium >/dev/null || ! command -v chromedriver >/dev/null; then
  if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
      chromium chromium-driver fonts-dejavu-core >/dev/null
  fi
fi
.venv/bin/python -m pip install -q --disable-pip-version-check -e '.[record,test]' \
  networkx pandas plotly psutil pydot pyyaml
# Without what it asks for beyond these: JupyterLab, for its notebooks.
.venv/bin/python -m pip install -q --disable-pip-version-check --no-deps 'HolisticTraceAnalysis>=0.5'
export PATH="$PWD/.venv/bin:$PATH"
ruff format --check .
ruff check .
mypy
if [[ ${1:-} == --fast ]]; then
  exec python -m pytest -m "not slow" -n auto
fi
exec python -m pytest -n auto
