-- Sets the class (QOS) and the place in the order (SiteFactor) of new jobs, from the decision table that
-- `sbudget reconcile` publishes, and tells the user. docs/reference/table.md says what the table holds;
-- pyslurm_budget/domain/submit.py is the same decision in Python, and a test compares the two.
--
-- It reads one small file at each submission, writes none, and never fails a job because of a fault of its own: an
-- error inside leaves the job as the user sent it. Lua 5.1 to 5.4, Slurm 22.05 to 26.05.
--
-- A site that has a job_submit.lua already keeps it and adds two lines to it, one at its top, one in its function:
--     SBUDGET_AS_MODULE = true; dofile("/etc/slurm/sbudget_submit.lua")
--     local rc = sbudget_job_submit(job_desc, part_list, submit_uid); if rc ~= slurm.SUCCESS then return rc end
-- and the same with sbudget_job_modify(job_desc, job_rec, part_list, modify_uid). As slurmctld watches only
-- job_submit.lua itself, touch that after a change of this file.

local TABLE_PATH = "/etc/slurm/sbudget.table"
if type(SBUDGET_TABLE_PATH) == "string" then TABLE_PATH = SBUDGET_TABLE_PATH end

local min, max, floor, format = math.min, math.max, math.floor, string.format

local OUR_RESERVATION = "sbudget_"
local ASKED_SPARE = "sbudget:spare" -- AdminComment of a job whose user typed a spare QOS
local SKEW = 60 -- seconds that a snapshot may be ahead of the clock
local SETTLE = 2 -- seconds until a job that was let in stands in Slurm's own list
local LARGEST = 9007199254740991 -- 2^53 - 1: all numbers are doubles
local LONGEST = 1025 -- one more than Slurm takes of any text that we read, but of an array's list
local MOST_PLACES = 500 -- different texts of partitions and types that are remembered
local MOST = 1000000000 -- counts above this are no counts
local NO_VAL, INFINITE, NO_VAL16 = 4294967294, 4294967295, 65534
-- 22.05 does not know most of these names, and a nil as return code accepts the job.
local SUCCESS = slurm.SUCCESS or 0
local ACCESS_DENIED = slurm.ESLURM_ACCESS_DENIED or 2002
local INVALID_TIME_LIMIT = slurm.ESLURM_INVALID_TIME_LIMIT or 2051

------------------------------------------------------------------------------------------- small tools

local function fail(text) error(text, 0) end

local function split(text, separator)
    local found, count, at = {}, 1, 1
    local stop = text:find(separator, 1, true)
    while stop do
        found[count] = text:sub(at, stop - 1)
        count, at = count + 1, stop + 1
        stop = text:find(separator, at, true)
    end
    found[count] = text:sub(at)
    return found
end

local function ceil_div(a, b)
    local rest = a % b
    return (a - rest) / b + (rest > 0 and 1.0 or 0.0)
end

-- A text field that is set, else nil. Of one that is too long for Slurm, which refuses the job after us, only the begin:
-- nobody can keep slurmctld busy with it.
local function text_of(value)
    if type(value) ~= "string" or value == "" then return nil end
    return #value <= LONGEST and value or value:sub(1, LONGEST)
end

-- A number field that is set, else nil; `none` is its "not set" (NO_VAL or NO_VAL16), which INFINITE is above.
local function count_of(value, none)
    if type(value) == "number" and value >= 0 and value < (none or NO_VAL) then return value + 0.0 end
    return nil
end

local function say(text) -- one call a line; never nil, never a user's text as the format
    for line in tostring(text):gmatch("[^\n]+") do slurm.log_user("%s", line) end
end

-------------------------------------------------------------------------------------------- words

local function rounded(amount, unit) -- to the nearest whole number, halves away from 0
    local whole = floor((2 * math.abs(amount) + unit) / (2 * unit))
    return amount < 0 and -whole or whole
end

local function gpu_hours(amount)
    local thousandths = rounded(amount, 3600)
    if thousandths ~= 0 and math.abs(thousandths) < 1000 then
        local text = format("%s0.%03d", thousandths < 0 and "-" or "", math.abs(thousandths))
        return (text:gsub("0+$", ""))
    end
    local tenths = rounded(amount, 360000)
    if math.abs(tenths) < 100 and tenths % 10 ~= 0 then
        local size = math.abs(tenths)
        return format("%s%d.%d", tenths < 0 and "-" or "", floor(size / 10), size % 10)
    end
    local text = format("%d", rounded(amount, 3600000))
    local more
    repeat text, more = text:gsub("^(-?%d+)(%d%d%d)", "%1,%2") until more == 0
    return text
end

local function gpus(rate)
    local text = format("%d.%03d", floor(rate / 1000), rate % 1000)
    return (text:gsub("0+$", ""):gsub("%.$", ""))
end

local function span(seconds)
    local function two(large, name, small, small_name)
        local first, second = floor(seconds / large), floor(seconds % large / small)
        if second == 0 then return format("%d %s", first, name) end
        return format("%d %s %d %s", first, name, second, small_name)
    end
    if seconds < 60 then return format("%d s", seconds) end
    if seconds < 600 then return two(60, "min", 1, "s") end
    if seconds < 3600 then return format("%d min", floor(seconds / 60)) end
    if seconds < 172800 then return two(3600, "h", 60, "min") end
    return two(86400, "d", 3600, "h")
end

------------------------------------------------------------------------------------------- the table

local function whole(text)
    local number = text == "0" and 0 or (text:find("^%-?[1-9]%d*$") and tonumber(text))
    if not number or number > LARGEST or number < -LARGEST then
        fail("'" .. text .. "' where a whole number is expected")
    end
    return number + 0.0
end

local function natural(text)
    local number = whole(text)
    if number < 0 then fail("'" .. text .. "' where a whole number of at least 0 is expected") end
    return number
end

local function flag(text)
    if text ~= "0" and text ~= "1" then fail("'" .. text .. "' where 0 or 1 is expected") end
    return text == "1"
end

local function optional(text)
    if text == "-" then return nil end
    return text
end

local function new(known, key)
    if known[key] ~= nil then fail("'" .. tostring(key) .. "' comes twice") end
end

local VERSION = "3"
local ONCE = { ["sbudget-table"] = 6, contract = 4, array = 1, scale = 2, horizons = 0 }
local FIELDS = { qos = 2, adopt = 1, claim = 2, operator = 2, fraction = 3, mode = 3, interactive = 2, partition = 4,
    shape = 6 }
local MOST_PARTS = 1000 -- of a GPU
local MODES = { observe = 1, advise = 2, enforce = 3 } -- the more careful first

-- One reader for each kind of line of the head; `f` are the fields after the kind.
local READ = {
    ["sbudget-table"] = function(t, f)
        if f[1] ~= VERSION then fail("version " .. f[1] .. ", this plugin reads version " .. VERSION) end
        natural(f[2])
        t.snapshot, t.stale_after, t.cluster, t.mode = natural(f[3]), natural(f[4]), f[5], f[6]
        if not MODES[t.mode] then fail("'" .. t.mode .. "' is no mode") end
    end,
    contract = function(t, f)
        t.cap, t.default, t.floor, t.requeue = natural(f[1]), natural(f[2]), natural(f[3]), flag(f[4])
    end,
    array = function(t, f) t.ahead = natural(f[1]) end,
    scale = function(t, f) t.backed_base, t.spare_base = natural(f[1]), natural(f[2]) end,
    horizons = function(t, f)
        local last = 0
        for i = 1, #f do
            t.horizons[i] = natural(f[i])
            if t.horizons[i] <= last then fail("the horizons do not ascend from above 0") end
            last = t.horizons[i]
        end
        if last == 0 then fail("the horizons do not ascend from above 0") end
    end,
    qos = function(t, f)
        new(t.twins, f[1])
        t.twins[f[1]] = f[2]
        t.managed[#t.managed + 1] = f[1]
    end,
    adopt = function(t, f)
        if not t.twins[f[1]] or t.adopt then fail("'" .. f[1] .. "' is no managed QOS, or a second one") end
        t.adopt = f[1]
    end,
    claim = function(t, f)
        if t.claim or t.twins[f[1]] or not t.twins[f[2]] then fail("a second claim QOS, or one without a managed home") end
        t.claim, t.home = f[1], f[2]
    end,
    operator = function(t, f)
        new(t.operators, natural(f[2]))
        t.operators[natural(f[2])] = f[1]
    end,
    fraction = function(t, f)
        new(t.fractions, f[1])
        local part, of = natural(f[2]), natural(f[3])
        if part < 1 or part > of or of > MOST_PARTS then fail(f[2] .. "/" .. f[3] .. " is no part of a GPU") end
        t.fractions[f[1]] = { part = part, of = of }
    end,
    interactive = function(t, f)
        local known = t.interactive[f[1]] or fail("'" .. f[1] .. "' where partition, qos or name is expected")
        new(known, f[2])
        known[f[2]] = true
        -- of a name's pattern, * is any text and ? any character
        if f[1] == "name" then known[f[2]] = "^" .. f[2]:gsub("%W", "%%%0"):gsub("%%%*", ".*"):gsub("%%%?", ".") .. "$" end
    end,
    mode = function(t, f)
        local known = t.modes[f[1]] or fail("'" .. f[1] .. "' where partition or account is expected")
        new(known, f[2])
        if not MODES[f[3]] then fail("'" .. f[3] .. "' is no mode") end
        known[f[2]] = f[3]
    end,
    partition = function(t, f)
        new(t.partitions, f[1])
        local line = { name = f[1], default = natural(f[2]), shapes = {} }
        if flag(f[3]) and not t.default_partition then t.default_partition = line end
        if f[4] ~= "-" then line.limit = natural(f[4]) end
        t.partitions[f[1]] = line
    end,
    shape = function(t, f)
        local partition = t.partitions[f[1]] or fail("the shape's partition is not known")
        partition.shapes[#partition.shapes + 1] = {
            pool = f[2], type = optional(f[3]), rate = natural(f[4]), cpus = natural(f[5]),
            memory = natural(f[6]),
        }
    end,
}

-- One reader for each kind of block's lines: what the fields after the first two (the kind, and the key) come to.
local READ_IN = {
    limit = function(t, f, key)
        if #f ~= 3 + #t.horizons then fail("a line of another length") end
        local limit = { name = f[2], key = key }
        for i = 3, #f do limit[i - 2] = whole(f[i]) end -- the ceiling first, then what is left at each horizon
        return limit
    end,
    account = function(_, f, _)
        if #f < 4 then fail("a line of another length") end
        local line = { backed_factor = natural(f[2]), spare_factor = natural(f[3]), limits = {}, keys = {}, latest = {} }
        for i = 4, #f do
            if f[i] == "-" and #f > 4 then fail("'-' among limits") end
            if f[i] ~= "-" then line.limits[i - 3], line.keys[i - 3] = f[i], f[i] .. "\t" .. f[1] end
        end
        return line
    end,
    users = function(_, f, key)
        if #f ~= 2 then fail("a line of another length") end
        local line = { qos = {}, pair = key }
        for _, name in ipairs(f[2] ~= "-" and split(f[2], ",") or {}) do line.qos[name] = true end
        return line
    end,
}
local NAMES_OF_LINES = { limit = "limit", account = "account", users = "user" }

local function fields_of(line)
    local fields = split(line, "\t")
    local kind = table.remove(fields, 1)
    for i = 1, #fields do
        if fields[i] == "" then fail("a field is empty") end
    end
    return kind, fields
end

local function read_line(t, number, line)
    local kind, fields = fields_of(line)
    if (number == 1) ~= (kind == "sbudget-table") or not READ[kind] then fail("unknown record") end
    if ONCE[kind] then
        new(t.seen, kind)
        t.seen[kind] = true
    end
    local count = ONCE[kind] or FIELDS[kind] or 0
    if count > 0 and #fields ~= count then fail("a line of another length") end
    READ[kind](t, fields)
end

local HEAD_OF_BLOCK = "^block\t(%l+)\t([^\t\n]+)\t(%d+)\n()"

-- Where each block begins: a walk from block to block, so that the work does not grow with what is in them.
local function index_blocks(t, at, final)
    while at < final do
        local kind, name, bytes, after = t.text:match(HEAD_OF_BLOCK, at)
        local known = kind and t.blocks[kind]
        if not known then fail("no block where one is expected, at byte " .. format("%d", at)) end
        new(known, name)
        known[name] = at
        at = after + natural(bytes)
        if at > final or t.text:byte(at - 1) ~= 10 then fail("the " .. kind .. " block of '" .. name .. "' is cut") end
    end
    if at ~= final then fail("the blocks are cut") end
end

-- The table of a text; raises the first fault. It reads the head; the blocks of accounts and limits are read when a job
-- of theirs comes.
local function parse(text)
    local t = { horizons = {}, twins = {}, managed = {}, operators = {}, partitions = {}, limits = {}, text = text }
    t.seen, t.fractions, t.modes = {}, {}, { partition = {}, account = {} }
    t.blocks, t.places, t.place_count = { limit = {}, account = {}, users = {} }, {}, 0
    t.interactive = { partition = {}, qos = {}, name = {} }
    local bytes = text:sub(-40):match("\nend\t(%d+)\n$")
    local final = bytes and #text - #bytes - 4 -- of the end line's first byte
    if not bytes or natural(bytes) ~= final - 1 then fail("the text is cut") end
    local from = text:find("\nblock\t", 1, true)
    from = from and from + 1 or final
    local number = 0
    for line in text:sub(1, from - 1):gmatch("([^\n]*)\n") do
        number = number + 1
        local ok, fault = pcall(read_line, t, number, line)
        if not ok then fail(format("line %d: %s", number, tostring(fault))) end
    end
    for kind in pairs(ONCE) do
        if not t.seen[kind] then fail("no " .. kind .. " line") end
    end
    if t.horizons[#t.horizons] ~= t.cap then fail("the last horizon is not the cap") end
    for _, twin in pairs(t.twins) do
        if t.twins[twin] then fail("a QOS is both managed and a spare twin") end
    end
    local here = slurm.CLUSTER_NAME
    if type(here) == "string" and here:lower() ~= t.cluster:lower() then fail("it is of cluster " .. t.cluster) end
    index_blocks(t, from, final)
    return t
end

-- The text of a block's lines, with the newline before them.
local function text_in(t, at)
    local _, _, bytes, after = t.text:match(HEAD_OF_BLOCK, at)
    return t.text:sub(after - 1, after + tonumber(bytes) - 1)
end

local function read_in(t, kind, name, text)
    local of, fields = fields_of(text)
    if of ~= NAMES_OF_LINES[kind] then fail("unknown record") end
    return fields[1], READ_IN[kind](t, fields, name .. "\t" .. fields[1])
end

-- The line of a pool (of a limit or an account) or of a user (of the users of an account), nil if there is none. Only
-- this line is read: there may be thousands in a block. A fault in it is raised as a table: it is a fault of the table's,
-- for the jobs that need this line only, and not of the plugin.
local function line_of(t, kind, name, key)
    local known = t.blocks[kind]
    local block = known[name]
    if not block or type(key) ~= "string" or key == "" or key:find("[\t\n]") then return nil end
    if type(block) == "number" then
        block = { text = text_in(t, block), lines = {} }
        known[name] = block
    end
    local found = block.lines[key]
    if found == nil then
        local before, after = block.text:find("\n" .. NAMES_OF_LINES[kind] .. "\t" .. key .. "\t", 1, true)
        if not before then
            found = false
        else
            local text = block.text:sub(before + 1, block.text:find("\n", after, true) - 1)
            local ok, fault, line = pcall(read_in, t, kind, name, text)
            found = ok and line or { fault = "the " .. kind .. " block of '" .. name .. "': " .. tostring(fault) }
        end
        block.lines[key] = found
    end
    if found and found.fault then error({ fault = found.fault }, 0) end
    return found or nil
end

------------------------------------------------------------- what was let in since the table's snapshot

-- { at, keys (limits, each with its pool), pair (account and user), rate, length }; what comes again in the same second is
-- added to the one before, so that ten thousand jobs of one kind are few entries.
local promises = {}
-- By limit and pool: what each pair took at the ceiling (1) and at each horizon (2 ...), the sum of all at the last one,
-- and what was entered there only, and not yet at the horizons between: they are asked for when it is tight.
local used = {}
local MOST_WAITING = 8

-- Half of a limit's number: so much of it others may take at most.
local function half_of(limit, i)
    local half = limit.half[i]
    if not half then
        half = floor(max(limit[i], 0) / 2)
        limit.half[i] = half
    end
    return half
end

-- Enters an amount of a pair at place i; of a limit that was read also in what all took of it.
local function take(limit, sums, i, amount)
    local before = sums[i] or 0.0
    local after = before + amount
    sums[i] = after
    if not limit then return end
    local half = half_of(limit, i)
    if before < half then limit.taken[i] = (limit.taken[i] or 0.0) + (after < half and after or half) - before end
end

-- Enters what waits at the horizons between.
local function settle(t, of_limit, limit)
    for _, w in ipairs(of_limit.waiting) do
        for i = 1, #t.horizons - 1 do
            take(limit, w.sums, i + 1, w.rate * min(t.horizons[i], w.length))
        end
    end
    of_limit.waiting = {}
end

local function enter(t, keys, pair, rate, length)
    local final = #t.horizons
    local amount = rate * min(t.horizons[final], length)
    for _, key in ipairs(keys) do
        local of_limit, limit = used[key], t.limits[key]
        if not of_limit then
            of_limit = { pairs = {}, total = 0.0, waiting = {} }
            used[key] = of_limit
        end
        local sums = of_limit.pairs[pair]
        if not sums then
            sums = {}
            of_limit.pairs[pair] = sums
        end
        of_limit.total = of_limit.total + amount
        take(limit, sums, 1, rate)
        take(limit, sums, final + 1, amount)
        local waiting = of_limit.waiting
        local latest = waiting[#waiting]
        if latest and latest.sums == sums and latest.length == length then
            latest.rate = latest.rate + rate
        else
            if #waiting >= MOST_WAITING then
                settle(t, of_limit, limit)
                waiting = of_limit.waiting
            end
            waiting[#waiting + 1] = { sums = sums, rate = rate, length = length }
        end
    end
end

local function promise(t, found, at)
    if found.rate == 0 then return end
    for _, line in ipairs(found.lines) do
        local p = line.latest[found.pair]
        if p and p.at == at and p.length == found.length then
            p.rate = p.rate + found.rate
        else
            p = { at = at, keys = line.keys, pair = found.pair, rate = found.rate, length = found.length }
            promises[#promises + 1], line.latest[found.pair] = p, p
        end
        enter(t, line.keys, found.pair, found.rate, found.length)
    end
end

-- A new table knows what was let in before its snapshot. Where the clock was set back, what was let in counts from now.
local function renew(t)
    local before, now = promises, os.time()
    promises, used = {}, {}
    for _, p in ipairs(before) do
        p.at = min(p.at, now)
        if p.at >= t.snapshot - SETTLE then
            promises[#promises + 1] = p
            enter(t, p.keys, p.pair, p.rate, p.length)
        end
    end
end

-- A limit of the table, with what was let in under it: of each (account, user) at most half of each of its numbers, so
-- that nobody empties a budget for the others by submissions alone (--test-only cannot be told apart here: job_desc has
-- no mark of it).
local function limit_of_name(t, name, pool, key)
    local limit = t.limits[key]
    if limit then return limit end
    limit = line_of(t, "limit", name, pool)
    if not limit then error({ fault = "no limit '" .. name .. "' in pool " .. pool }, 0) end
    limit.taken, limit.half, limit.least = {}, {}, math.huge
    for i = 2, #limit do
        if limit[i] < limit.least then limit.least = limit[i] end
    end
    local of_limit = used[key]
    if of_limit then
        settle(t, of_limit)
        for _, sums in pairs(of_limit.pairs) do
            for i = 1, #limit do
                limit.taken[i] = (limit.taken[i] or 0.0) + min(sums[i] or 0, half_of(limit, i))
            end
        end
    end
    t.limits[key] = limit
    return limit
end

-- What is left of a limit at place i for this pair: all of its own promises are subtracted.
local function left_at(limit, own, i)
    local rest, amount = limit[i] - (limit.taken[i] or 0.0), own and own[i]
    if amount and amount > half_of(limit, i) then rest = rest + half_of(limit, i) - amount end
    return rest
end

-- What is left for this pair under all limits of an account line, and whose limit each is: at the ceiling (1) and at each
-- horizon (2 ...); if the price fits everywhere for sure, at the ceiling and the last horizon alone.
local function left_of(t, line, pool, pair, price)
    local limits, roomy = {}, true
    for n, name in ipairs(line.limits) do
        local limit = limit_of_name(t, name, pool, line.keys[n])
        local of_limit = used[limit.key]
        roomy = roomy and price <= limit.least - (of_limit and of_limit.total or 0)
        limits[n] = limit
    end
    local left, names, final = {}, {}, #t.horizons + 1
    for n, limit in ipairs(limits) do
        local of_limit = used[limit.key]
        local own = of_limit and of_limit.pairs[pair]
        if of_limit and not roomy then settle(t, of_limit, limit) end
        for i = 1, final, roomy and final - 1 or 1 do
            local rest = left_at(limit, own, i)
            if n == 1 or rest < left[i] then left[i], names[i] = rest, limit.name end
        end
    end
    return left, names
end

------------------------------------------------------------------------------------- reading the table

local last = {} -- first: the first line read, good: the table of it, state: what was logged

local function note(state, text)
    if state ~= last.state then
        last.state = state
        local log = state == "fresh" and slurm.log_info or slurm.log_error
        log("sbudget: %s: %s", TABLE_PATH, tostring(text))
    end
end

-- The table now (nil if it cannot be used), and whether it is stale. Read again only when its first line changed; one
-- that cannot be used once a second.
local function current_table()
    local file = io.open(TABLE_PATH, "r")
    local first = file and file:read("*l")
    local now, text = os.time(), nil
    if first and (first ~= last.first or not (last.usable or now == last.tried)) then
        text = first .. "\n" .. (file:read("*a") or "")
    end
    if file then file:close() end
    if not first then
        last.usable, last.first = false, nil
        note("missing", "the decision table cannot be read; typed QOS become spare if there was one before")
        return nil
    end
    if text then
        local ok, found = pcall(parse, text)
        last.usable, last.first, last.tried = ok, first, now
        if not ok then
            note("unusable " .. tostring(found), "the decision table cannot be used: " .. tostring(found))
        else
            last.good = found
            renew(found)
        end
    end
    if not last.usable then return nil end
    -- A snapshot from the future: the clock was set back, and nobody knows how old it is.
    local stale = now > last.good.stale_after or now < last.good.snapshot - SKEW
    if stale then
        note("stale", "the decision table is stale; new jobs get its classes at the floor price")
    else
        note("fresh", "the decision table is in use, mode " .. last.good.mode)
    end
    return last.good, stale
end

------------------------------------------------------------------------------------------- the comment

local UNITS = { d = { 1, 86400 }, h = { 2, 3600 }, m = { 3, 60 }, min = { 3, 60 }, s = { 4, 1 } }
local COLONS = { { 60 }, { 60, 1 }, { 3600, 60, 1 } }
local DAYS = { { 3600 }, { 3600, 60 }, { 3600, 60, 1 } }

local function sum_of(text, forms)
    local parts, total = split(text, ":"), 0.0
    local factors = forms[#parts]
    if not factors then return nil end
    for i, part in ipairs(parts) do
        if not part:find("^%d+$") or #part > 10 then return nil end
        total = total + tonumber(part) * factors[i]
    end
    return total
end

-- Seconds of any Slurm time form, or of 90s, 90m, 4h, 1d, 1h30m; nil if it is none.
local function seconds_of(text)
    local days, rest = text:match("^(%d+)%-(.+)$")
    if days then
        local below = #days <= 10 and sum_of(rest, DAYS)
        return below and tonumber(days) * 86400.0 + below or nil
    end
    if text:find("^[%d:]+$") then return sum_of(text, COLONS) end
    local total, order, at = 0.0, 0, 1
    while at <= #text do
        local digits, name, after = text:match("^(%d+)(%l+)()", at)
        local unit = UNITS[name]
        if not unit or #digits > 10 or unit[1] <= order then return nil end
        total, order, at = total + tonumber(digits) * unit[2], unit[1], after
    end
    return at > 1 and total or nil
end

-- Seconds that the comment declares (nil: none), and the sentence if it cannot be read.
local function declared_minimum(comment)
    local found
    for token in comment:gmatch("[^ \t\n\v\f\r,;]+") do
        local rest = token:lower():match("^min[%-_]runtime(.*)$")
        if rest == "" or (rest and rest:find("^[=:]")) then
            local value = token:sub(13)
            if rest:sub(1, 1) ~= "=" or value == "" then
                return nil, "'" .. token .. "' in the comment has no readable value; write min-runtime=4h."
            end
            local seconds = seconds_of(value)
            if not seconds then
                return nil, "min-runtime=" .. value .. " is not a duration; write 90m, 4h, 1d, or a time as Slurm takes it "
                    .. "(1-12:00:00)."
            end
            if found and found ~= seconds then
                return nil, "min-runtime is declared more than once in the comment; keep one."
            end
            found = seconds
        end
    end
    return found
end

-------------------------------------------------------------------------------------------- the request

local SUFFIX = { [""] = 1.0, k = 1024.0, m = 1048576.0, g = 1073741824.0 }

-- GPUs (or what else `name` says) in a TRES or GRES text in any spelling of any release, and adds the types that it
-- names; nil if unreadable.
local function gpus_in(text, types, name)
    local untyped, typed, total = 0.0, 0.0, nil
    if text:find("(", 1, true) then text = text:gsub("%b()", "") end
    for item in text:gmatch("[^,%s]+") do
        local words = {}
        for word in item:gsub("^gres[:/]", ""):gmatch("[^:/=]+") do
            if word ~= "no_consume" then words[#words + 1] = word end
        end
        if words[1] == (name or "gpu") then
            local count = 1.0
            local digits, suffix = (words[#words]):match("^(%d+)([kKmMgG]?)$")
            if #words > 1 and digits then
                count = tonumber(digits) * SUFFIX[suffix:lower()]
                words[#words] = nil
            end
            if #words > 2 or count > MOST then return nil end
            if words[2] then
                types[words[2]] = true
                typed = typed + count
            elseif item:find("=") then
                total = count
            else
                untyped = untyped + count
            end
        end
    end
    return total or untyped + typed
end

-- Tasks of an array, counted until they are more than `enough`; a text that cannot be read counts as very many.
local function tasks_in(text, enough)
    local count = 0.0
    local at_once = text:find("%", 1, true)
    if at_once then text = text:sub(1, at_once - 1) end
    for item in text:gmatch("[^,]+") do
        if #item > 30 then return NO_VAL + 0.0 end
        local first, final, step = item:match("^(%d+)%-?(%d*):?(%d*)$")
        if not first then return NO_VAL + 0.0 end
        first, final, step = tonumber(first), tonumber(final) or tonumber(first), tonumber(step) or 1
        if step < 1 or final < first then return NO_VAL + 0.0 end
        count = count + floor((final - first) / step) + 1
        if count > enough then return count end
    end
    return count > 0 and count or NO_VAL + 0.0
end

-- How many GPUs (or shards) all the ways to ask come to, and whether all could be read. `asked` are the texts, `times`
-- how often each counts.
local function total_of(asked, times, name, types)
    local total, readable = 0.0, true
    for i = 1, #times do
        local text = asked[i]
        if text then
            local count = gpus_in(text, types, name)
            if not count or (count > 0 and times[i] == 0) or count * times[i] > MOST then
                readable = false
            else
                total = max(total, count * times[i])
            end
        end
    end
    return total, readable
end

-- The size of a job: nodes, GPUs (nil where only Slurm can know), their type, CPUs and memory (MiB) in all. Each field is
-- read once, and only if it matters: Slurm looks for it by name among a hundred.
local function size_of(job)
    local nodes = max(count_of(job.min_nodes) or 1, 1)
    local tasks = count_of(job.num_tasks)
    if not tasks then
        local per_node = count_of(job.ntasks_per_node, NO_VAL16) or 0
        tasks = per_node > 0 and per_node * nodes or nodes
    end
    -- job_desc.gres is tres_per_node under another name
    local asked = { text_of(job.tres_per_job), text_of(job.tres_per_node), text_of(job.tres_per_task),
        text_of(job.tres_per_socket) }
    local sockets = asked[4] and count_of(job.sockets_per_node, NO_VAL16) or 0
    local times, types, ignored = { 1, nodes, tasks, sockets * nodes }, {}, {}
    local total, readable = total_of(asked, times, "gpu", types)
    local shards, cpus, memory = 0.0, 0.0, 0.0
    if total > 0 then
        local per_device = text_of(job.cpus_per_tres)
        if per_device then cpus = total * (gpus_in(per_device, ignored) or 0) end
        per_device = text_of(job.mem_per_tres)
        if per_device then memory = total * (gpus_in(per_device, ignored) or 0) end
    else
        local also
        shards, also = total_of(asked, times, "shard", ignored)
        local per_gpu = (count_of(job.ntasks_per_tres, NO_VAL16) or 0) + (count_of(job.ntasks_per_gpu, NO_VAL16) or 0)
        readable = readable and also and per_gpu == 0
    end
    local per_task = count_of(job.cpus_per_task, NO_VAL16) or 1
    cpus = max(cpus, count_of(job.min_cpus) or 0, tasks * max(per_task, 1),
        nodes * (count_of(job.pn_min_cpus, NO_VAL16) or 0))
    local per_node = count_of(job.min_mem_per_node, MOST)
    local per_cpu = not per_node and count_of(job.min_mem_per_cpu, MOST)
    memory = max(memory, (per_node or 0) * nodes, (per_cpu or 0) * cpus)
    local kind = next(types)
    if kind and next(types, kind) then kind = nil end
    return {
        nodes = nodes, gpus = readable and total or nil, shards = shards, type = kind, cpus = cpus, memory = memory,
        exclusive = job.shared == 0, all_memory = per_node == 0 or per_cpu == 0,
    }
end

-- The managed QOS that a text (a name or a list) comes to, and whether its spare twin was meant; nil for neither.
local function managed_qos(t, text)
    local names = split((text or ""):lower(), ",")
    for _, name in ipairs(names) do
        if t.twins[name] then return name, false end
    end
    for _, name in ipairs(names) do
        for _, managed in ipairs(t.managed) do
            if t.twins[managed] == name then return managed, true end
        end
    end
    return nil
end

-- The partitions with GPUs of a text (a name or a list, nil: the default one) that the table knows.
local function partitions_of(t, text)
    local found = {}
    local function add(line)
        if line and #line.shapes > 0 then found[#found + 1] = line end
    end
    if not text then add(t.default_partition) end
    for _, name in ipairs(text and split(text, ",") or {}) do add(t.partitions[name]) end
    return found
end

-- The mode for a job of an account in these partitions (a text, nil: the default one): the most careful of all.
local function mode_for(t, account, partition)
    local mode = t.mode
    local function at_most(other)
        if other and MODES[other] < MODES[mode] then mode = other end
    end
    at_most(t.modes.account[(account or "-"):lower()])
    if next(t.modes.partition) == nil then return mode end
    local default = t.default_partition and t.default_partition.name or "-"
    for _, name in ipairs(split(partition or default, ",")) do at_most(t.modes.partition[name]) end
    return mode
end

-- The time limit in seconds (nil: none): what was given in minutes, else the longest of the partitions.
local function limit_of(minutes, partitions)
    if minutes == INFINITE or minutes == 0 then return nil end
    if count_of(minutes) then return minutes * 60.0 end
    local longest = 0
    for _, p in ipairs(partitions) do
        if not p.limit then return nil end
        longest = max(longest, p.limit)
    end
    return longest
end

local function names_ours(reservation)
    for name in (text_of(reservation) or ""):gmatch("[^,]+") do
        if name:sub(1, #OUR_RESERVATION) == OUR_RESERVATION then return true end
    end
    return false
end

---------------------------------------------------------------------------------------------- the rule

-- What GPUs of a type come to, or shards where no GPU is named, in thousandths of a GPU.
local function asked(t, size, kind)
    local count, part = size.gpus, kind and t.fractions[kind] or { part = 1, of = 1 }
    if count == 0 then count, part = size.shards, t.fractions.shard end
    return part and ceil_div(count * 1000 * part.part, part.of) or 0.0
end

-- The dearest of the shapes, in thousandths of a GPU.
local function rate_of(t, size, shapes)
    local dearest = 0.0
    for _, s in ipairs(shapes) do
        local rate = asked(t, size, s.type)
        if s.rate > 0 and s.cpus > 0 then rate = max(rate, ceil_div(s.rate * size.cpus, s.cpus)) end
        if s.rate > 0 and s.memory > 0 then rate = max(rate, ceil_div(s.rate * size.memory, s.memory)) end
        if size.exclusive or (size.all_memory and s.memory > 0) then
            rate = max(rate, s.rate * size.nodes)
        end
        dearest = max(dearest, rate)
    end
    return dearest
end

local function fits(t, rate, length, left)
    if left[2] == nil then return true end -- so roomy that the horizons between were not looked at
    for i, h in ipairs(t.horizons) do
        if rate * min(h, length) > left[i + 1] then return false end
    end
    return true
end

local function price_length(t, contract, limit, stale)
    return min(max(stale and 0 or contract, t.floor), limit or math.huge)
end

-- The line that names a shorter contract that would be backed now; empty for none.
local function shorter(t, rate, contract, j, lefts)
    if not j.requeueable or j.stale then return "" end
    local best = 0
    for i = 0, #t.horizons do
        local h = t.horizons[i] or t.floor
        if h >= 60 and h < contract and h > best then
            local ok = true
            for _, left in ipairs(lefts) do
                ok = ok and fits(t, rate, price_length(t, h, j.limit, false), left)
            end
            if ok then best = h end
        end
    end
    if best == 0 then return "" end
    local minutes = floor(best / 60)
    return format("\nA contract of %s would be backed: --comment=min-runtime=%dm", span(minutes * 60), minutes)
end

-- Why a job is spare whatever its budget has left, if so: the sentence, and the marker.
local function always_spare(t, j, job, declared)
    local typed = j.twin_meant and j.typed
    if declared == 0 or typed then return "as asked.", typed and ASKED_SPARE or nil end
    local cron = job.cron_job
    if cron and cron ~= 0 then return "scrontab jobs are always spare." end
    if not j.requeueable and (not j.limit or j.limit > t.cap) then
        return format("it cannot be requeued, so its whole time limit would be protected; the longest contract is "
            .. "%s. Ask for --time of at most %s, or submit it with sbatch --requeue.", span(t.cap), span(t.cap))
    end
    if j.het then return "the parts of a heterogeneous job are judged together; decided before its start." end
    if not j.size.gpus or #j.shapes == 0 then
        return "how many GPUs it gets is known only to Slurm; decided before its start."
    end
    return nil
end

-- Asks the budget in every pool that the job may land on: the sentence why it is spare, or nil and what it promises.
local function by_budget(t, j, job, contract)
    local lines = {}
    for n, pool in ipairs(j.pools) do
        lines[n] = line_of(t, "account", j.account, pool)
        if not lines[n] or #lines[n].limits == 0 then return "account " .. j.account .. " has no budget here." end
    end
    local array = job.array_inx
    if type(array) ~= "string" or array == "" then array = nil end
    local tasks = array and tasks_in(array, t.ahead) or 1
    if array and tasks > t.ahead then
        return format("%d tasks of an array at a time are backed while the budget allows; the rest runs on idle GPUs.",
            t.ahead)
    end
    local rate, length = rate_of(t, j.size, j.shapes) * tasks, price_length(t, contract, j.limit, j.stale)
    local lefts, names = {}, {}
    for n, pool in ipairs(j.pools) do
        lefts[n], names[n] = left_of(t, lines[n], pool, j.pair, rate * min(length, t.cap))
    end
    for i, left in ipairs(lefts) do
        if rate > left[1] then
            return format("it asks for %s GPUs, %s may have %s more under contract at one time. It is backed before "
                .. "its start when contracts have ended.", gpus(rate), names[i][1], gpus(max(left[1], 0)))
        end
        if not fits(t, rate, length, left) then
            local least, limit = math.huge, "-"
            for h = 2, #left do
                if left[h] < least then least, limit = left[h], names[i][h] end
            end
            local needs = "its contract needs " .. gpu_hours(rate * length) .. " GPU-h"
            local more = array and "\nAs many of its tasks as the budget allows are backed before their start."
                or shorter(t, rate, contract, j, lefts)
            if least < 0 then
                return limit .. " is " .. gpu_hours(-least) .. " GPU-h over its budget (" .. needs .. ")." .. more
            end
            return needs .. ", " .. limit .. " has " .. gpu_hours(least) .. " left." .. more
        end
    end
    if not j.allowed[j.managed] then return "you may not use QOS " .. j.managed .. " in this account." end
    local final = #t.horizons + 1
    return nil, { lines = lines, pair = j.pair, rate = rate, length = length, left = lefts[1][final],
        limit = names[1][final], factor = lines[1].backed_factor }
end

-- Whether a batch job counts as interactive: by its managed QOS, a partition or its name.
local function is_session(t, managed, partitions, job)
    if t.interactive.qos[managed] then return true end
    for _, p in ipairs(partitions) do
        if t.interactive.partition[p.name] then return true end
    end
    local name = next(t.interactive.name) and text_of(job.name) or ""
    for _, pattern in pairs(t.interactive.name) do
        if name:find(pattern) then return true end
    end
    return false
end

-- Where a job may land: the partitions with GPUs of a text, their shapes of a GPU type (nil: of any), and the pools of
-- these. It is the same for all jobs that say the same, so it is kept, for as many as sites have.
local function place_of(t, partition, kind)
    local id = (partition or "") .. "\t" .. (kind or "")
    if t.places[id] then return t.places[id] end
    local place, seen = { partitions = partitions_of(t, partition), shapes = {}, pools = {} }, {}
    for _, p in ipairs(place.partitions) do
        for _, s in ipairs(p.shapes) do
            if not kind or s.type == kind then
                place.shapes[#place.shapes + 1] = s
                if not seen[s.pool] then place.pools[#place.pools + 1] = s.pool end
                seen[s.pool] = true
            end
        end
    end
    if t.place_count >= MOST_PLACES then t.places, t.place_count = {}, 0 end
    t.places[id], t.place_count = place, t.place_count + 1
    return place
end

-- Everything that is known of a job of ours; nil if it is none.
local function judged_job(t, stale, job, account, partition)
    local j = { stale = stale, account = (account or "-"):lower() }
    local user = line_of(t, "users", j.account, text_of(job.user_name))
    j.allowed, j.pair = user and user.qos, user and user.pair
    -- "normal" is what Slurm gives where nobody chose (then default_qos is nil); other defaults are never overruled
    local default = text_of(job.default_qos) or "normal"
    local typed = text_of(job.qos)
    j.typed = typed
    j.managed, j.twin_meant = managed_qos(t, typed or default)
    if not j.managed and not typed and default == "normal" then j.managed = t.adopt end
    if not j.managed or not j.allowed then return nil end
    local partitions = place_of(t, partition, nil).partitions
    if #partitions == 0 then return nil end
    j.default, j.limit, j.size = partitions[1].default, limit_of(job.time_limit, partitions), size_of(job)
    j.het = count_of(job.het_job_offset) ~= nil
    local requeue = count_of(job.requeue, NO_VAL16)
    if requeue == nil then j.requeueable = t.requeue else j.requeueable = requeue ~= 0 end
    -- Parts of a het job after the first have no script either.
    if job.script == nil and not j.het then j.requeueable = false end
    if is_session(t, j.managed, partitions, job) then j.requeueable = false end
    local place = place_of(t, partition, j.size.type)
    j.shapes, j.pools = place.shapes, place.pools
    return j
end

local function refused(code, text) return { refused = code, message = text } end

-- The decision: { refused } or { qos, site_factor, marker, promise } (all nil: leave it), and the message.
local function decide(t, stale, job, account, partition)
    if names_ours(job.reservation) then
        return refused(ACCESS_DENIED, "Reservations named sbudget_* are made and filled by the budget controller; submit "
            .. "without it.")
    end
    local j = judged_job(t, stale, job, account, partition)
    if not j then return {} end
    local declared, fault = declared_minimum(text_of(job.comment) or "")
    if fault then return refused(INVALID_TIME_LIMIT, fault) end
    if declared and declared > t.cap then
        return refused(INVALID_TIME_LIMIT, format("min-runtime=%s: the longest contract here is %s. Ask for the time "
            .. "to your first useful checkpoint; the job may run on after it.", span(declared), span(t.cap)))
    end
    local why, marker = always_spare(t, j, job, declared)
    local found
    if not why then
        local contract = j.requeueable and (declared or min(j.default, t.cap)) or j.limit
        contract = min(contract, j.limit or math.huge)
        why, found = by_budget(t, j, job, contract)
        if not why then
            local text = format("%s, %s: backed. Protected for %s from its start (%s of %s GPU-h left: %s's limit)%s",
                j.account, j.pools[1], span(contract), gpu_hours(found.rate * found.length), gpu_hours(found.left),
                found.limit, j.requeueable and ", then it may be requeued."
                    or ": its time limit, as it cannot be requeued.")
            return { qos = j.managed, site_factor = found.factor, promise = found, message = text }
        end
    end
    local twin, pool = t.twins[j.managed], j.pools[1]
    local text = j.account .. (pool and ", " .. pool or "") .. ": spare, may be preempted at any time: " .. why
    if not j.allowed[twin] then
        return { message = text .. "\nIt keeps its QOS for now: you may not use QOS " .. twin
            .. " in this account; ask your administrator." }
    end
    local line = pool and line_of(t, "account", j.account, pool)
    return { qos = twin, site_factor = line and line.spare_factor or t.spare_base, marker = marker, message = text }
end

-- Without a table that can be used: a typed managed QOS must not be protected and free.
local function without_table(job)
    local t, typed = last.good, text_of(job.qos)
    local account = text_of(job.account) or text_of(job.default_account)
    if not t or not typed or mode_for(t, account, text_of(job.partition)) ~= "enforce" then return {} end
    local managed, twin_meant = managed_qos(t, typed)
    local user = managed and line_of(t, "users", (account or "-"):lower(), text_of(job.user_name))
    if not user or twin_meant or not user.qos[t.twins[managed]] then return {} end
    return { qos = t.twins[managed], site_factor = t.spare_base,
        message = "spare until the budget controller decides: its table cannot be read just now." }
end

-- A fault in a part of the table is raised as a table: for the jobs that need this part there is no table then.
local function decide_or_fall_back(t, stale, job, account, partition)
    local ok, found = pcall(decide, t, stale, job, account, partition)
    if ok then return found end
    if type(found) ~= "table" then error(found, 0) end
    if last.fault ~= found.fault then
        last.fault = found.fault
        slurm.log_error("sbudget: %s: %s", TABLE_PATH, tostring(found.fault))
    end
    return without_table(job)
end

local function submit(job)
    local t, stale = current_table()
    local account = text_of(job.account) or text_of(job.default_account)
    local partition = text_of(job.partition)
    local mode = t and mode_for(t, account, partition)
    if mode == "observe" then return SUCCESS end
    local d
    if t then d = decide_or_fall_back(t, stale, job, account, partition) else d = without_table(job) end
    if d.message then say(d.message) end
    local immediate = d.promise and job.immediate
    if d.promise and not (type(immediate) == "number" and immediate ~= 0) then
        promise(t, d.promise, os.time())
    end
    if t and mode ~= "enforce" then return SUCCESS end
    if d.refused then return d.refused end
    -- Everything is done; the fields are assigned last, so that a failure before leaves the job as it came.
    if d.qos then
        job.qos = d.qos
        job.site_factor = d.site_factor
        if d.marker then job.admin_comment = d.marker end
    end
    return SUCCESS
end

-------------------------------------------------------------------------------------- changes of a job

-- Fields whose change opens the admission of a waiting job again (a longer time limit is looked at apart).
local TEXTS = { "partition", "features", "gres", "tres_per_job", "tres_per_node", "tres_per_socket", "tres_per_task",
    "cpus_per_tres", "mem_per_tres", "array_inx", "req_nodes", "licenses", "reservation" }
local NUMBERS = { "min_nodes", "max_nodes", "min_cpus", "max_cpus", "num_tasks" }
local SMALL = { "cpus_per_task", "ntasks_per_node", "ntasks_per_tres", "ntasks_per_gpu", "sockets_per_node", "shared",
    "pn_min_cpus" }

local function reopens(job, rec)
    for _, name in ipairs(TEXTS) do
        if type(job[name]) == "string" and job[name] ~= rec[name] then return true end
    end
    for _, name in ipairs(NUMBERS) do
        if count_of(job[name]) and job[name] ~= rec[name] then return true end
    end
    for _, name in ipairs(SMALL) do
        if count_of(job[name], NO_VAL16) and job[name] ~= rec[name] then return true end
    end
    if type(job.min_mem_per_node) == "number" or type(job.min_mem_per_cpu) == "number" then return true end
    local limit = job.time_limit
    return type(limit) == "number" and limit ~= NO_VAL and limit > (tonumber(rec.time_limit) or 0)
end

-- The contract of a comment in seconds, or nil and a sentence.
local function contract_in(t, comment, partition)
    local declared, fault = declared_minimum(text_of(comment) or "")
    if fault then return nil, fault end
    if declared and declared > t.cap then return nil, "the longest contract here is " .. span(t.cap) .. "." end
    local first = partitions_of(t, text_of(partition))[1]
    return declared or min(first and first.default or t.default, t.cap)
end

-- The managed QOS of a job's record, and whether it is spare; one that claims is as in its home.
local function managed_of(t, rec)
    local qos = text_of(rec.qos)
    if qos and qos == t.claim then return t.home, false end
    return managed_qos(t, qos)
end

-- What is refused to the owner and to coordinators: the sentence; or nil, and whether the job becomes spare.
local function judge_change(t, job, rec)
    if names_ours(job.reservation) then return "reservations named sbudget_* are made and filled by the controller." end
    local managed, is_spare = managed_of(t, rec)
    for _, name in ipairs(split((text_of(job.qos) or ""):lower(), ",")) do
        if name == t.claim then return "only the budget controller gives QOS " .. name .. "." end
    end
    local backed = managed and not is_spare
    local wanted, wants_spare = managed_qos(t, text_of(job.qos))
    if wanted and not wants_spare and not backed then
        return "only the budget controller moves a job to QOS " .. wanted .. "; it does so as soon as the budget allows."
    end
    if not managed then return nil end
    if job.qos == "" and is_spare then return "only the budget controller takes a job out of QOS " .. rec.qos .. "." end
    if count_of(job.requeue, NO_VAL16) == 0 then return "a job of a budget stays requeueable; submit it anew." end
    if text_of(job.account) and text_of(job.account):lower() ~= (text_of(rec.account) or ""):lower() then
        return "a job stays in its account; cancel it and submit it to the other."
    end
    if type(job.comment) ~= "string" then return nil, backed and reopens(job, rec) end
    local contract, fault = contract_in(t, job.comment, rec.partition)
    if not contract then return fault end
    local before = contract_in(t, rec.comment, rec.partition) or 0
    if backed and contract > before then
        return format("its contract of %s can only be lowered; submit it anew for %s.", span(before), span(contract))
    end
    return nil, backed and (contract == 0 or reopens(job, rec))
end

local function modify(job, rec, uid)
    local t = current_table() or last.good
    if uid == 0 or not t or t.operators[uid] then return SUCCESS end
    if mode_for(t, text_of(rec.account), text_of(rec.partition)) ~= "enforce" then return SUCCESS end
    local fault, to_spare = judge_change(t, job, rec)
    if fault then
        say("sbudget: " .. fault)
        return ACCESS_DENIED
    end
    local twin = t.twins[(managed_of(t, rec))]
    local pending = (tonumber(rec.job_state) or 0) % 256 == 0
    local user = to_spare and pending and line_of(t, "users", (text_of(rec.account) or "-"):lower(), text_of(rec.user_name))
    if user and user.qos[twin] then
        say("sbudget: changed; the job is spare until the budget controller has judged it again.")
        job.qos = twin
        -- Some releases replace the time limit when the QOS changes, unless the update has one.
        if job.time_limit == nil or job.time_limit == NO_VAL then job.time_limit = rec.time_limit end
    end
    return SUCCESS
end

------------------------------------------------------------------------------------------ the entries

-- Slurm accepts a job whose plugin raised (up to 25.11), or rejects it with our error as text (26.05): neither.
local function guarded(call, ...)
    local ok, result = pcall(call, ...)
    if ok then return result end
    if type(result) == "table" then result = result.fault end
    if last.error ~= tostring(result) then
        last.error = tostring(result)
        pcall(slurm.log_error, "sbudget: %s; the job is left as it is", last.error)
    end
    return SUCCESS
end

function sbudget_job_submit(job_desc, _, _) return guarded(submit, job_desc) end

function sbudget_job_modify(job_desc, job_rec, _, modify_uid) return guarded(modify, job_desc, job_rec, modify_uid) end

-- The first fault of the table at TABLE_PATH, nil if every line of it can be used; for `sbudget setup` and the tests.
function sbudget_table_fault()
    local file = io.open(TABLE_PATH, "r")
    if not file then return "it cannot be opened" end
    local text = file:read("*a")
    file:close()
    local ok, fault = pcall(function()
        local t = parse(text or "")
        for kind, known in pairs(t.blocks) do
            for name, at in pairs(known) do
                local lines = {}
                for line in text_in(t, at):sub(2):gmatch("([^\n]*)\n") do
                    local key, read = read_in(t, kind, name, line)
                    new(lines, key)
                    lines[key] = read
                end
                known[name] = lines
            end
        end
        for _, lines in pairs(t.blocks.account) do
            for pool, line in pairs(lines) do
                for _, limit in ipairs(line.limits) do
                    if not (t.blocks.limit[limit] or {})[pool] then fail("no limit '" .. limit .. "' in pool " .. pool) end
                end
            end
        end
    end)
    if ok then return nil end
    return tostring(fault)
end

if not SBUDGET_AS_MODULE then
    slurm_job_submit = sbudget_job_submit
    slurm_job_modify = sbudget_job_modify
end

return SUCCESS
