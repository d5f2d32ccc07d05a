-- The door of a cluster, as HAProxy loads it: which files it reads, and where it counts.

local settings = require("settings")

-- where: models_file, key_file, by_conversation, journals (a directory), keep_days, peers (other doors),
-- peer_key_file.
return function(where)
  settings.read(where.models_file, where.key_file)
  settings.by_conversation = where.by_conversation
  core.register_action("admit", { "http-req" }, require("admit"))
  core.register_filter("usage", require("usage"), function(usage) return usage end)
  core.register_service("metrics", "http", require("metrics"))
  local peers = require("peers")
  core.register_service("journal", "http", peers.journal)
  peers.start(where.peers, where.peer_key_file, where.journals)
  require("counts").start(where.journals, where.keep_days)
end
