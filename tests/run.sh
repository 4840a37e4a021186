#!/usr/bin/env bash
# Everything the tests need, then the tests: `bash tests/run.sh [pytest's arguments]`.
set -euo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-python3}
venv=${VENV:-.venv}
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r tests/requirements.txt

# A browser: one that is there, else Debian's where we may install it, else Playwright's own.
if ! command -v chromium chromium-browser google-chrome >/dev/null; then
    if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-dejavu >/dev/null
    else
        "$venv/bin/python" -m playwright install chromium
    fi
fi

"$venv/bin/ruff" check .
"$venv/bin/ruff" format --check .
"$venv/bin/pyright" --pythonpath "$venv/bin/python"
"$venv/bin/python" -m pip check
exec "$venv/bin/python" -m pytest "$@"
