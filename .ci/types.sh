#!/usr/bin/env bash
# Type-check the installed layout: mypy sees one `slackswap` package through a folder of links.
set -euo pipefail
cd "$(dirname "$0")/.."
rm -rf .typing
mkdir -p .typing/slackswap
for entry in slackswap/*.py slackswap/*.pyi slackswap/py.typed slackswap/analysis slackswap/cost_model slackswap/schemas \
             planners search execution profiles evaluation cli; do
  ln -s "../../$entry" ".typing/slackswap/$(basename "$entry")"
done
"${PYTHON:-.venv/bin/python}" -m mypy --package slackswap "$@"
