-- Advice of forerun for a job of Slurm. It changes nothing where anything fails, and waits no longer than its budget.
-- Lua 5.1 to 5.4; LuaSocket (lua-socket) and Lua CJSON (lua-cjson).

local M = {}

local PREFIX = "forerun:"
local VARIABLE = "FORERUN_WORKLOAD"
local MOST_BYTES = 4 * 1024 * 1024
local MOST_NAMED = 5
local OPTIONS = { objective = true, risk = true }
local LIMITS = { must_fit = "must_fit", in_domain_only = "in_domain_only", max_latency_ms = "latency_ms",
  max_power_w = "power_w", max_peak_memory_mib = "peak_memory_mib" }
local TEXTS = { graph = true }
local MISTAKES = { ["404"] = true, ["422"] = true }

local function set(text)
  return text ~= nil and text ~= ""
end

-- Ends the advice with what the owner of the job can mend, who gets it in words.
local function mistake(text)
  error({ mistake = text }, 0)
end

-- Number, truth value or text.
local function value_of(key, text)
  if TEXTS[key] then return text end
  if text == "true" then return true end
  if text == "false" then return false end
  return tonumber(text) or text
end

-- What the job's comment ("forerun:graph=resnet50,batch_size=64,...") or its variable FORERUN_WORKLOAD says; nil where
-- neither names a workload. An entry without "=" is an error.
function M.text_of(job)
  local comment = job.comment
  if set(comment) and comment:sub(1, #PREFIX) == PREFIX then return comment:sub(#PREFIX + 1) end
  local variable = job.environment and job.environment[VARIABLE]
  return set(variable) and variable or nil
end

-- The request of POST /v1/rank without devices, and how many batches the job runs (nil where it does not say).
function M.request_of(text)
  local request, workload, limits, batches = {}, { kind = "network" }, {}, nil
  for entry in text:gmatch("[^,]+") do
    local key, given = entry:match("^%s*([%w_]+)%s*=%s*(.-)%s*$")
    if not key then mistake("'" .. entry .. "' is not KEY=VALUE") end
    local value = value_of(key, given)
    if key == "batches" then
      batches = tonumber(given) or mistake("batches is no number")
    elseif OPTIONS[key] then
      request[key] = value
    elseif LIMITS[key] then
      limits[LIMITS[key]] = value
    else
      workload[key] = value
    end
  end
  request.workload = workload
  if next(limits) then request.limits = limits end
  return request, batches
end

-- Whether a name stands in a text as a whole word.
local function holds(text, name)
  for word in text:gmatch("[%w_%.%-]+") do
    if word == name then return true end
  end
  return false
end

-- All of what a job names for its GRES.
local function gres_of(job)
  local parts = {}
  for _, field in ipairs({ "gres", "tres_per_node", "tres_per_job", "tres_per_socket", "tres_per_task" }) do
    local found, text = pcall(function() return job[field] end)
    if found and type(text) == "string" then parts[#parts + 1] = text end
  end
  return table.concat(parts, ",")
end

-- GPUs that a job requests by the last number of gpu:N, gpu:TYPE:N or gpu=N; 1 where it names none.
function M.gpus_of(job)
  local most = 1
  for entry in gres_of(job):gmatch("[^,]+") do
    most = math.max(most, tonumber(entry:match("gpu.*[:=](%d+)$")) or 1)
  end
  return most
end

-- The places that what the job names (`text`) leaves; all, where it names none of them.
local function narrowed(places, field, text)
  if not set(text) then return places end
  local left = {}
  for _, place in ipairs(places) do
    if set(place[field]) and holds(text, place[field]) then left[#left + 1] = place end
  end
  return #left > 0 and left or places
end

-- The places where a job may run. A partition that leads to none of them leaves none.
function M.places_of(job, places)
  local left = places
  if set(job.partition) then
    left = {}
    for _, place in ipairs(places) do
      if set(place.partition) and holds(job.partition, place.partition) then
        left[#left + 1] = place
      elseif not set(place.partition) then
        left[#left + 1] = place
      end
    end
  end
  return narrowed(narrowed(left, "feature", job.features), "gres", gres_of(job))
end

function M.devices_of(places)
  local devices, seen = {}, {}
  for _, place in ipairs(places) do
    if not seen[place.device] then
      devices[#devices + 1], seen[place.device] = place.device, true
    end
  end
  return devices
end

-- What the service says of fields of the request, with the keys of a job in their place.
local function in_keys(text)
  for key, field in pairs(LIMITS) do
    text = text:gsub("body%.limits%." .. field, key):gsub("did you mean " .. field .. "%?", "did you mean " .. key .. "?")
  end
  return (text:gsub("body%.workload%.", ""):gsub("body%.", ""))
end

-- The body of an answer with status 200.
function M.body_of(answer)
  local status = answer:match("^HTTP/1%.%d (%d%d%d) ")
  if not status then error("the answer is not HTTP", 0) end
  local _, last = answer:find("\r\n\r\n", 1, true)
  if not last then error("the answer has no end of its header", 0) end
  local body = answer:sub(last + 1)
  if MISTAKES[status] then mistake(in_keys((body:match('"detail":"(.-[^\\])"') or body:sub(1, 300)):gsub('\\"', '"'))) end
  if status ~= "200" then error("status " .. status .. ": " .. body:sub(1, 300), 0) end
  local length = answer:sub(1, last):lower():match("\r\ncontent%-length:%s*(%d+)")
  if length and tonumber(length) ~= #body then error("the answer is cut off", 0) end
  return body
end

-- Ask, and return the whole answer. `connection` and `now` (seconds) are LuaSocket's, or stand in for them in tests.
-- Each call gets what is left of the budget, so that all together take no longer than it.
function M.exchange(connection, path, request, budget_s, now)
  local start = now()
  local function bounded(name, ...)
    local elapsed = math.max(now() - start, 0) -- A clock that was set back does not lengthen the wait.
    if elapsed >= budget_s then error("no answer within " .. budget_s * 1000 .. " ms", 0) end
    connection:settimeout(budget_s - elapsed, "t")
    return connection[name](connection, ...)
  end
  local connected, why = bounded("connect", path)
  if not connected then error("cannot connect to " .. path .. ": " .. tostring(why), 0) end
  local sent, broken = bounded("send", request)
  if not sent then error("cannot ask: " .. tostring(broken), 0) end
  local all, ended, part = bounded("receive", MOST_BYTES)
  if ended == "timeout" then error("no answer within " .. budget_s * 1000 .. " ms", 0) end
  if all or ended ~= "closed" then error("cannot read the answer: " .. tostring(ended or "too long"), 0) end
  return part
end

local function ask(request, settings)
  local socket, unix, json = require("socket"), require("socket.unix"), require("cjson.safe")
  local body = assert(json.encode(request))
  local connection = assert((type(unix) == "table" and unix.stream or unix)())
  local head = "POST /v1/rank HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
  local done, answer = pcall(M.exchange, connection, settings.socket, head .. #body .. "\r\n\r\n" .. body,
    settings.budget_ms / 1000, socket.gettime)
  connection:close()
  if not done then error(answer, 0) end
  local content, why = json.decode(M.body_of(answer))
  if type(content) ~= "table" then error("the answer is no JSON object: " .. tostring(why), 0) end
  return content
end

local function number(value)
  if type(value) ~= "number" then error("the answer holds no number where one belongs", 0) end
  return string.format("%.4g", value)
end

local function interval(estimate)
  local text = number(estimate.value) .. " " .. tostring(estimate.unit)
  if type(estimate.low) == "number" and type(estimate.high) == "number" then
    text = text .. " (" .. number(estimate.low) .. " to " .. number(estimate.high) .. ")"
  end
  return text
end

-- Minutes for all batches by the upper end of the interval, as a sentence; "" where that is not known.
local function duration(best, batches)
  local latency = batches and best.metrics and best.metrics.latency_ms
  if type(latency) ~= "table" or type(latency.high) ~= "number" then return "" end
  local minutes = math.ceil(batches * latency.high / 60000)
  return string.format("; %.0f batches take up to %.0f min there, without loading and start-up", batches, minutes)
end

-- The advice in words, and the name of the best device (nil where none meets the limits).
function M.advice_of(content, batches)
  local ranked, excluded = content.ranked, content.excluded
  if type(ranked) ~= "table" or type(excluded) ~= "table" then error("the answer is no ranking", 0) end
  local parts = {}
  for place, each in ipairs(ranked) do
    if place > MOST_NAMED then break end
    parts[place] = each.device.name .. " " .. interval(each.objective)
  end
  local best = ranked[1]
  if not best then
    local one = excluded[1]
    local reason = one and one.device.name .. ": " .. table.concat(one.reasons, "; ") or "no device was asked about"
    return "no device meets the limits; " .. reason, nil
  end
  local text = tostring(content.objective) .. ": " .. table.concat(parts, ", ")
  if #ranked > MOST_NAMED then text = text .. " and " .. #ranked - MOST_NAMED .. " more" end
  text = text .. duration(best, batches)
  if #excluded > 0 then text = text .. "; excluded: " .. M.names_of(excluded) end
  return text, best.device.name
end

function M.names_of(list)
  local names = {}
  for _, each in ipairs(list) do names[#names + 1] = each.device.name end
  return table.concat(names, ", ")
end

-- What to set so that the job runs on the device: a field of the job and its value; nil where the job left no choice.
function M.choice_of(job, places, device)
  if #M.devices_of(places) < 2 then return nil end
  for _, place in ipairs(places) do
    if place.device == device then
      if set(place.feature) and not set(job.features) then return "features", place.feature end
      if set(place.partition) and (not set(job.partition) or job.partition:find(",", 1, true)) then
        return "partition", place.partition
      end
    end
  end
  return nil
end

-- One line, whatever a comment or an answer held.
local function line(text)
  return (tostring(text):gsub("%c", " "))
end

local function advised(job, settings, asked)
  local text = M.text_of(job)
  if not text then return nil end
  local places = M.places_of(job, settings.places)
  local request, batches = M.request_of(text)
  request.devices = M.devices_of(places)
  if #request.devices == 0 then error("no device of the settings is in the partition " .. tostring(job.partition), 0) end
  local advice, best = M.advice_of(asked(request, settings), batches)
  local gpus = M.gpus_of(job)
  if gpus > 1 then advice = advice .. "; " .. gpus .. " GPUs are requested, and these figures are of one" end
  local result = { advice = advice }
  if settings.choose and best then result.field, result.value = M.choice_of(job, places, best) end
  return result
end

-- Write the advice of forerun into the job, and for its owner, who is also told of a mistake; of any other failure only
-- the log of slurmctld has a line. `asked` stands in for the service in tests.
function M.advise(job, settings, slurm, asked)
  local done, result = pcall(advised, job, settings, asked or ask)
  if not done then
    local own = type(result) == "table" and result.mistake
    slurm.log_info("forerun: no advice: %s", line(own or result))
    if own then slurm.log_user("forerun: no advice: %s", line(own)) end
    return
  end
  if not result then return end
  local note = "forerun: " .. line(result.advice)
  if result.field then
    job[result.field] = result.value
    note = note .. "; " .. result.field .. " set to " .. result.value
  end
  local before = job.admin_comment
  job.admin_comment = set(before) and before .. "; " .. note or note
  slurm.log_info("%s", note)
  slurm.log_user("%s", note)
end

return M
