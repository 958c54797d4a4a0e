-- Run by scripts/fuzz_plugin: PLUGIN GOOD_TABLE TABLE_PATH JOBS TABLES SEED LIMIT. Prints what it found; status 1 for
-- anything. LIMIT is milliseconds of CPU for one call; that it loads a table is no excuse on a table of this size.
local plugin, good_path, path, jobs, tables, seed = arg[1], arg[2], arg[3], tonumber(arg[4]), tonumber(arg[5]), tonumber(arg[6])
local LIMIT = tonumber(arg[7]) / 1000
local found, calls, slowest, over = 0, 0, 0, 0
local logged, now = nil, 1000000

local function report(what, ...)
    found = found + 1
    if found <= 20 then print(_VERSION .. ": " .. string.format(what, ...)) end
end

local function copies(of)
    local found = {}
    for i, value in ipairs(of) do
        found[i] = value
        if type(value) == "table" then
            found[i] = {}
            for key, field in pairs(value) do found[i][key] = field end
        end
    end
    return found
end

-- As in slurmctld: a nil argument makes the formatting raise, which ends the script's function.
local function wrapper(into)
    return function(fmt, ...)
        for i = 1, select("#", ...) do
            if select(i, ...) == nil then error("bad argument to 'format'") end
        end
        local text = string.format(fmt, ...)
        if into then logged = text end
    end
end
slurm = { SUCCESS = 0, ERROR = -1, FAILURE = -1, NO_VAL = 4294967294, NO_VAL16 = 65534, INFINITE = 4294967295 }
slurm.CLUSTER_NAME = "demo"
slurm.log_user = wrapper(false)
for _, name in ipairs({ "error", "info", "verbose", "debug" }) do slurm["log_" .. name] = wrapper(true) end
os.time = function() return now end -- luacheck: ignore
SBUDGET_TABLE_PATH = path

math.randomseed(seed)
local random = math.random
local function pick(list) return list[random(#list)] end

local WORDS = { "account0001", "account0002", "ACCOUNT0003", "nlp", "nobody", "backed", "spare", "normal", "gpu", "gpu,cpu",
    "alice", "bob", "min-runtime=4h", "min-runtime=", "min-runtime=9h", "x,min_runtime=90m;y", "min-runtime=1-2:3:4:5",
    "gres/gpu:4", "gres:gpu:a100:2", "gpu", "gres/gpu=4,gres/gpu:a100=4", "shard:3", "cpu=4,gres/gpu:x:y:z=9k", "0-9%3",
    "1,3-7:2", "0-99999999999", "%%%s%d%n", "sbudget_1", "a,sbudget_2", "backed,spare", "BACKED", "-", "", "\0", "\t", "\n" }
local NUMBERS = { 0, 1, -1, 0.5, 2, 8, 60, 480, 65533, 65534, 65535, 4294967293, 4294967294, 4294967295, 2 ^ 53, 2 ^ 62,
    1.8446744073709552e19, 1 / 0, -1 / 0, 0 / 0 }
local FIELDS = { "account", "default_account", "qos", "default_qos", "partition", "comment", "reservation", "user_name",
    "tres_per_job", "tres_per_node", "tres_per_task", "tres_per_socket", "gres", "cpus_per_tres", "mem_per_tres", "array_inx",
    "min_nodes", "num_tasks", "min_cpus", "time_limit", "het_job_offset", "cpus_per_task", "shared", "ntasks_per_node",
    "ntasks_per_tres", "ntasks_per_gpu", "sockets_per_node", "pn_min_cpus", "requeue", "min_mem_per_node", "min_mem_per_cpu",
    "immediate", "cron_job", "features", "max_nodes", "priority", "script", "name", "licenses", "req_nodes", "begin_time" }

local LONG = { ("a,"):rep(50000), ("1,"):rep(50000), ("min-runtime=4h,"):rep(5000), ("gpu:1,"):rep(20000), ("(("):rep(20000),
    ("min-runtime=" .. ("1h"):rep(9999)), ("9"):rep(50000), ("9"):rep(33000) .. "x", ("9-"):rep(500) .. "x",
    ("sbudget"):rep(9000), (":"):rep(50000), ("a "):rep(50000) }

local function noise()
    local bytes = {}
    for i = 1, random(0, 40) do bytes[i] = string.char(random(0, 255)) end
    return table.concat(bytes)
end

local function value()
    if random(500) == 1 then return pick(LONG) end
    local kind = random(10)
    if kind <= 4 then return pick(WORDS) end
    if kind <= 7 then return pick(NUMBERS) end
    if kind == 8 then return noise() end
    if kind == 9 then return pick(WORDS) .. "," .. pick(WORDS) end
    return pick({ true, false, {} })
end

local function job()
    local fields = { user_name = "alice", account = "account0001", default_qos = "backed", script = "#!", time_limit = 60,
        requeue = 65534, min_nodes = 4294967294, num_tasks = 4294967294, tres_per_job = "gres/gpu:1" }
    for _ = 1, random(0, 8) do fields[pick(FIELDS)] = value() end
    return fields
end

local function shown(of)
    local parts = {}
    for _, value in ipairs(of) do
        for key, field in pairs(type(value) == "table" and value or {}) do
            parts[#parts + 1] = key .. "=" .. string.format("%q", tostring(field):sub(1, 20))
        end
    end
    return table.concat(parts, " ")
end

-- A call that takes too long is made again: what is slow because of the job is slow each time, and is a find.
local unpack = table.unpack or unpack
local function timed(call, ...)
    local again = copies({ ... })
    local before = os.clock()
    local ok, code = pcall(call, ...)
    local took = os.clock() - before
    calls = calls + 1
    slowest = math.max(slowest, took)
    if took > LIMIT then
        over = over + 1
        for _ = 1, 5 do
            local given = copies(again)
            before = os.clock()
            pcall(call, unpack(given))
            took = math.min(took, os.clock() - before)
        end
        if took > LIMIT then report("%.3f ms each time: %s", took * 1000, shown(again)) end
    end
    if not ok then report("it raised: %s", tostring(code)) end
    if ok and code ~= 0 and code ~= 2002 and code ~= 2051 then report("it returned %s", tostring(code)) end
    if logged and logged:find("left as it is", 1, true) then report("an error inside: %s", logged) end
    logged = nil
    return code
end

local function read(name)
    local file = assert(io.open(name, "rb"))
    local text = file:read("*a")
    file:close()
    return text
end

local function write(text)
    local file = assert(io.open(path, "wb"))
    file:write(text)
    file:close()
end

local good = read(good_path)

-- Random jobs and changes of jobs, on a good table; now and then the clock jumps.
write(good)
dofile(plugin)
for i = 1, jobs do
    now = 1000000 + (random(1000) == 1 and random(-200000, 200000) or 0)
    if random(4) > 1 then
        timed(slurm_job_submit, job(), {}, 1000)
    else
        local record = job()
        record.job_state = pick(NUMBERS)
        timed(slurm_job_modify, job(), record, {}, pick({ 0, 1000, 1001 }))
    end
    if i % 10000 == 0 then dofile(plugin) end
end

-- Tables that are cut, have wrong bytes, doubled, lost or swapped lines, or are none at all. A job that was promised
-- something by a table that is not whole is a find: the end line of a cut text never fits.
local function broken()
    local kind, at = random(6), random(#good)
    if kind == 1 then return good:sub(1, at - 1), true end
    if kind == 2 then return good:sub(1, at - 1) .. noise() .. good:sub(at + random(0, 3)) end
    if kind == 3 then return good:sub(1, at - 1) .. string.char(random(0, 255)) .. good:sub(at + 1) end
    if kind == 4 then return noise(), true end
    if kind == 5 then return good:sub(1, at) .. good:sub(random(#good)) end
    local other = random(#good)
    return good:sub(1, at - 1) .. good:sub(other, other) .. good:sub(at + 1)
end
for _ = 1, tables do
    local text, never = broken()
    write(text)
    now = 1000000
    dofile(plugin)
    for _, account in ipairs({ "account0001", "nlp", "account0013" }) do
        local submitted = { user_name = "alice", account = account, script = "#!", time_limit = 60, tres_per_job = "gres/gpu:1" }
        timed(slurm_job_submit, submitted, {}, 1000)
        if never and submitted.qos then report("a table of %d of %d bytes gave a class", #text, #good) end
    end
    local ok, fault = pcall(sbudget_table_fault)
    if not ok then report("sbudget_table_fault raised: %s", tostring(fault)) end
end

print(string.format("%s: %d calls, %d found, the slowest %.3f ms, %d once over %g ms", _VERSION, calls, found,
    slowest * 1000, over, LIMIT * 1000))
os.exit(found == 0 and 0 or 1)
