-- Who is let in, to which engine, and what everybody else is answered, in OpenAI's form.

local counts, json, settings = require("counts"), require("json"), require("settings")
local beginning, usage = require("conversation"), require("usage")

-- How a stream tells what it has used: when asked for it, or by itself, at its end or its beginning and end.
local ASKED, BY_ITSELF = 1, 2
local RESPONSES, MESSAGES = "/v1/responses", "/v1/messages"
local PATHS = {
  ["/v1/chat/completions"] = ASKED, ["/v1/completions"] = ASKED, ["/v1/embeddings"] = ASKED,
  [RESPONSES] = BY_ITSELF, [MESSAGES] = BY_ITSELF, [MESSAGES .. "/count_tokens"] = BY_ITSELF,
}
local ONCE = { model = true, stream = true, stream_options = true, background = true }
local STARTED = os.time()

local function answer(txn, status, body, headers)
  headers = headers or {}
  headers["content-type"] = { "application/json" }
  txn:done(txn:reply({ status = status, headers = headers, body = body }))
end

local function refuse(txn, status, code, message, seconds)
  local kind = code == "rate_limit_exceeded" and "rate_limit_error" or "invalid_request_error"
  txn:set_var("txn.refusal", code)
  counts.refused(txn:get_var("txn.client") or "-", status, code)
  answer(
    txn,
    status,
    ('{"error": {"message": %s, "type": "%s", "param": null, "code": "%s"}}'):format(
      json.quoted(message), kind, code),
    seconds and { ["retry-after"] = { tostring(seconds) } }
  )
end

local function described(model)
  return ('{"id": %s, "object": "model", "created": %d, "owned_by": "vllm"}'):format(
    json.quoted(model), STARTED)
end

local function list(txn, client, wanted)
  if wanted then
    if settings.engines[wanted] and client.may_use(wanted) then
      return answer(txn, 200, described(wanted))
    end
    return refuse(txn, 404, "model_not_found", "the model " .. wanted .. " does not exist")
  end
  local found = {}
  for _, model in ipairs(settings.names) do
    if client.may_use(model) then found[#found + 1] = described(model) end
  end
  answer(txn, 200, '{"object": "list", "data": [' .. table.concat(found, ", ") .. "]}")
end

-- vLLM takes other values for true, which this would not count as a stream.
local BOOLEAN = { ["true"] = true, ["false"] = true, ["null"] = true }
local OFF = { ["false"] = true, ["null"] = true }

local function options_of(members)
  local raw = members.stream_options
  if not raw or raw == "null" then return {} end
  return json.members(raw, { include_usage = true, continuous_usage_stats = true })
end

-- Returns how many choices each prompt of a stream has, nil where there is one of one prompt.
local function choices_of(members)
  local number, prompts = members.n or "1", members.prompt or members.prompt_embeds or ""
  if number == "null" then number = "1" end
  if number == "1" and prompts:sub(1, 1) ~= "[" then return nil end
  -- vLLM takes "2" and 2.0 as well.
  return math.max(1, tonumber((number:gsub('"', ""))) or 1)
end

-- A stream says what it has used only when asked; whether its client asked, the filter minds.
local function ask_for_usage(members, state)
  local options, why = options_of(members)
  if not options then return why end
  local function given(name) return (options[name] or "false") ~= "false" end
  state.asked = usage.ASKED
  state.wants_usage = given("include_usage")
  state.wants_each = given("continuous_usage_stats")
  return nil
end

local function limited(txn, client, model)
  local once = client.at_once
  if once and txn:get_var("txn.at_once") > once then
    return refuse(txn, 429, "rate_limit_exceeded", "more than " .. once .. " requests at once", 1)
  end
  local tokens = client.tokens_per_day
  if tokens and counts.tokens_today(client.name) >= tokens then
    return refuse(txn, 429, "rate_limit_exceeded",
      "the " .. tokens .. " tokens of this day (UTC) are used up", counts.seconds_to_midnight())
  end
  tokens = client.tokens_per_month
  if tokens and counts.tokens_this_month(client.name) >= tokens then
    return refuse(txn, 429, "rate_limit_exceeded",
      "the " .. tokens .. " tokens of this month (UTC) are used up", counts.seconds_to_next_month())
  end
  local seconds = counts.request(client.name, model, client.requests_per_minute)
  if seconds then
    return refuse(txn, 429, "rate_limit_exceeded",
      "more than " .. client.requests_per_minute .. " requests a minute", seconds)
  end
end

local function admit(txn)
  local record = txn:get_var("txn.record")
  if not record then
    return refuse(txn, 401, "invalid_api_key", "the key is missing, wrong or revoked")
  end
  local client, path, method = settings.client(record), txn.sf:path(), txn.sf:method()
  if path == "/v1/models" or path:find("^/v1/models/.") then
    if method ~= "GET" then return refuse(txn, 405, "method_not_allowed", "use GET") end
    return list(txn, client, path:match("^/v1/models/(.+)$"))
  end
  if not PATHS[path] then return refuse(txn, 404, "not_found", "no such path: " .. path) end
  if method ~= "POST" then return refuse(txn, 405, "method_not_allowed", "use POST") end
  txn:set_var("txn.endpoint", path)

  local members, closing = json.members(txn.sf:req_body(), ONCE)
  if not members then return refuse(txn, 400, "invalid_request", closing) end
  local model = json.plain(members.model)
  if not model or model == "" then
    return refuse(txn, 400, "model_missing", "the body names no model: \"model\" is to be a text")
  end
  local backend = settings.engines[model]
  if not backend then
    return refuse(txn, 404, "model_not_found", "the model " .. model .. " does not exist")
  end
  txn:set_var("txn.model", json.escaped(model))
  if not client.may_use(model) then
    return refuse(txn, 403, "model_not_allowed", "this key may not use the model " .. model)
  end
  if not BOOLEAN[members.stream or "false"] then
    return refuse(txn, 400, "invalid_request", '"stream" is to be true or false')
  end
  if path == RESPONSES and not OFF[members.background or "false"] then
    return refuse(txn, 400, "invalid_request", "no \"background\": what it uses could not be counted")
  end
  local state = { began = counts.clock(), used = counts.of(client.name, model), closing = closing, asked = "" }
  if members.stream == "true" and PATHS[path] == BY_ITSELF then
    state.by_pieces = true
  elseif members.stream == "true" then
    local why = ask_for_usage(members, state)
    if why then return refuse(txn, 400, "invalid_request", "stream_options: " .. why) end
    state.choices = choices_of(members)
  end
  local prioritised = settings.prioritised[model]
  if path == MESSAGES then
    -- Its body has no place for it.
    if prioritised then txn.http:req_set_header("x-vllm-priority", ("%d"):format(client.priority)) end
  elseif prioritised or members.priority then
    -- Of a name that comes twice the last one counts: a client gives itself no other priority, also
    -- where only some engines of a model serve by it.
    state.asked = (',"priority":%d'):format(prioritised and client.priority or 0) .. state.asked
  end
  limited(txn, client, model)
  if state.asked ~= "" then
    local length = tonumber(txn.sf:req_fhdr("content-length"))
    if length then txn.http:req_set_header("content-length", tostring(length + #state.asked)) end
  end
  txn:set_var("txn.number", usage.hand_over(state))
  txn:set_var("txn.backend", backend)
  local shared = settings.by_conversation and beginning(members, path == RESPONSES)
  if shared then
    txn.http:req_set_header("x-conversation", ("%016x"):format(txn.sc:xxh64(shared, 0)))
  end
  txn.http:req_set_header("authorization", "Bearer " .. settings.key)
end

return admit
