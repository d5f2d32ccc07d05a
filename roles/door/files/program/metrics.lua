-- What each client has asked for, used and been refused, in Prometheus' text format.

local counts, journal = require("counts"), require("journal")

local NAMES = {
  { "vllm_door_requests_total", "Requests that were sent on to an engine." },
  { "vllm_door_prompt_tokens_total", "Tokens of prompts, as the engines report them." },
  { "vllm_door_generation_tokens_total", "Tokens of answers, as the engines report them." },
}

local function head(lines, name, words)
  lines[#lines + 1] = "# HELP " .. name .. " " .. words
  lines[#lines + 1] = "# TYPE " .. name .. " counter"
end

return function(applet)
  local lines = {}
  for place, one in ipairs(NAMES) do
    head(lines, one[1], one[2])
    for client, totals in pairs(counts.totals) do
      lines[#lines + 1] = ('%s{client="%s"} %d'):format(one[1], client, totals[place])
    end
  end
  head(lines, "vllm_door_refusals_total", "Requests that the door refused; without a valid key, client is -.")
  for labels, number in pairs(counts.refusals) do
    lines[#lines + 1] = ("vllm_door_refusals_total{%s} %d"):format(labels, number)
  end
  head(lines, "vllm_door_journal_refused_total", "Lines of the journal that could not be written; they are tried again.")
  lines[#lines + 1] = "vllm_door_journal_refused_total " .. journal.refused
  local body = table.concat(lines, "\n") .. "\n"
  applet:set_status(200)
  applet:add_header("content-type", "text/plain; version=0.0.4")
  applet:add_header("content-length", tostring(#body))
  applet:start_response()
  applet:send(body)
end
