-- gpu_share.lua: says for job_submit.lua, which is beside it, which jobs cannot share, and why. Both
-- are on the host of slurmctld, in the folder of slurm.conf.
--
-- The plugin says the same in sbatch, salloc and srun. Only slurmctld sees jobs that come another
-- way (slurmrestd, a submit host without the plugin), and what `sbatch --export=GPU_SHARE=...` gives
-- to a job without being set where sbatch runs.
--
-- fault_of(job) returns a sentence for the user that names the remedy, or nil. job: what
-- slurm_job_submit is called with. A heterogeneous job comes in its components, an array as one job.

-- several_nodes: whether jobs on several nodes can share GPUs, as the plugin's line in plugstack.conf
-- has it. A site where they can sets it in its job_submit.lua.
local M = { release = "@VERSION@", several_nodes = false }

-- Options of SPANK plugins travel in the array job.spank_job_env, which is counted from 0.
local OPTION = "^_SLURM_SPANK_OPTION_gpu_share_gpu_share=(.*)$"
-- Where gpu-lease-placer says that it runs: placer.runtime_dir of its configuration.
local ALIVE = "/run/gpu-lease-placer/alive"
local LONGEST_ALIVE, LONGEST_HOLD = 120, 3600 -- seconds that its file may name, whatever the clocks
local LONGEST_COMMENT = 1023 -- bytes that slurmctld takes
local EXCLUSIVE = 0 -- of job.shared
local SHOWN = 40 -- bytes of it that a message repeats

local function option_of(job)
	for index = 0, (job.spank_job_env_size or 0) - 1 do
		local value = string.match(job.spank_job_env[index] or "", OPTION)
		if value then
			return value
		end
	end
	return nil
end

-- GPU_SHARE of a batch job: the environment of salloc and srun is not sent.
local function environment_of(job)
	local value = job.script and job.environment and job.environment["GPU_SHARE"]
	return value ~= "" and value or nil
end

-- One entry of a list: NAME[:TYPE][:COUNT] or NAME[:TYPE][=COUNT], with "gres:" or "gres/" before it
-- or not: some releases of Slurm add the first to what a user has written with the second.
local function entry_names(entry, name)
	local rest, more = entry, 1
	while more > 0 do
		rest, more = string.gsub(rest, "^gres[:/]", "")
	end
	local first, last = string.find(rest, name, 1, true)
	if first ~= 1 or not string.find(string.sub(rest, last + 1), "^[:=]") and #rest ~= last then
		return false
	end
	return not string.find(rest, "[:=]0+$") -- none of them
end

-- A GRES can stand in any of these.
local function asks_for(job, name)
	local fields = { job.tres_per_node, job.tres_per_job, job.tres_per_task, job.tres_per_socket, job.gres }
	for _, text in pairs(fields) do
		for entry in string.gmatch(type(text) == "string" and text or "", "[^,]+") do
			if entry_names(entry, name) then
				return true
			end
		end
	end
	return false
end

-- A number without sign and exponent, and the text after it; nil: there is no number.
local function number_and_unit(text)
	local number, unit = string.match(text, "^(%d*%.?%d*)(.*)$")
	local digits = #string.gsub(number, "%.", "")
	if digits < 1 or digits > 15 then
		return nil
	end
	return tonumber(number), unit
end

-- From so many to so many ms.
local function is_time(least, most)
	local milliseconds = { [""] = 1e3, s = 1e3, ms = 1, m = 60e3 }
	return function(text)
		local number, unit = number_and_unit(text)
		local length = number and milliseconds[unit] and number * milliseconds[unit]
		return length ~= nil and length ~= false and length >= least and length <= most
	end
end

-- From so many to so many bytes, or a fraction.
local function is_amount(least, most)
	local power = { K = 1, M = 2, G = 3, T = 4 }
	return function(text)
		local number, unit = number_and_unit(text)
		if not number then
			return false
		end
		if unit == "" or unit == "%" then
			number = unit == "%" and number / 100 or number
			return number * 1e12 + 0.5 >= 1 and number <= 1
		end
		local letter = string.match(unit, "^([KMGT])i?B?$")
		if not letter or #unit == 2 then
			return false
		end
		local bytes = number * 1024 ^ power[letter]
		return bytes >= least and bytes <= most
	end
end

-- A part of the GPU's time; nil: the text is not one.
local function part(text)
	local number, unit = number_and_unit(text)
	if not number or (unit ~= "" and unit ~= "%") then
		return nil
	end
	number = unit == "%" and number / 100 or number
	return number <= 1 and number or nil
end

local function is_part(least)
	return function(text)
		return part(text) ~= nil and part(text) >= least
	end
end

local function is_label(longest)
	return function(text)
		return #text <= longest and string.find(text, "^[%w%-_.]+$") ~= nil
	end
end

-- What a value says, as spank/conflicts.def has it.
local function said_by(given)
	local request, limit = part(given.request or "0"), part(given.limit or "1")
	return {
		REQUESTS = request > 0,
		LIMITED = limit < 1,
		SMALLER = limit < 1 and limit < request,
		request = request,
		limit = limit,
		CLASSED = (given.class or "none") ~= "none",
		UNLOCKED = given.lock == "off",
		PARTED = part(given.sm or "1") < 1,
		TIMED = given.space == "time",
	}
end

local function one_of(...)
	local known = {}
	for _, word in ipairs({ ... }) do
		known[word] = true
	end
	return function(text)
		return known[text] == true
	end
end

-- From here to the next comment made from spank/refusals.def, conflicts.def and keys.def
-- by `python -m leased.config.documents`: why a job cannot share, what a value of --gpu-share cannot
-- say at once, and the values that each of its keys may have.
local REFUSALS = {
	several_nodes = "a job on several nodes cannot share GPUs here; ask for one node (-N1), or for whole GPUs (--gres=gpu:1 instead of the shard)",
	both = "a job has whole GPUs or shards, not both; leave out the shard, or the whole GPUs",
	exclusive = "with --exclusive a job has its GPUs for itself and shares none; leave out --exclusive, or --gpu-share",
	whole = "--gpu-share without a shard; ask for --gres=shard:1 instead of whole GPUs, or leave out --gpu-share",
	no_shard = "--gpu-share without a shard; add --gres=shard:1",
}
local CONFLICTS = {
	{ "CLASSED", "REQUESTS", "a job with a class has no share of the GPU's time; leave request out, or class" },
	{ "CLASSED", "LIMITED", "a job with a class has no share of the GPU's time; leave limit out, or class" },
	{ "CLASSED", "UNLOCKED", "a job with a class heeds the lock where memory does not fit; leave lock:off out, or class" },
	{ "REQUESTS", "SMALLER", "request:%g is above limit:%g; lower request, or raise limit" },
	{ "REQUESTS", "UNLOCKED", "request needs turns, and lock:off takes none; leave lock:off out" },
	{ "LIMITED", "UNLOCKED", "limit needs turns, and lock:off takes none; leave lock:off out" },
	{ "PARTED", "TIMED", "sm needs a GPU that MPS shares, and space:time wants none; leave space out, or sm" },
}
local LONGEST = 511 -- bytes of the option's value
M.keys = {
	tq = is_time(1, 86400000),
	lock = one_of("on", "off", "auto"),
	mem = is_amount(1048576, 1125899906842624),
	oversub = one_of("on", "off"),
	memory = one_of("managed", "swap", "auto"),
	request = is_part(0),
	limit = is_part(0.01),
	affinity = is_label(63),
	["anti-affinity"] = is_label(63),
	exclusion = is_label(63),
	class = one_of("online", "offline", "none"),
	space = one_of("time", "mps"),
	sm = is_part(0.01),
	chain = is_label(63),
}

local function shown(text)
	local printable = string.gsub(string.sub(text, 1, SHOWN), "[^\32-\126]", "?")
	return string.format("'%s%s'", printable, #text > SHOWN and "..." or "")
end

-- Why --gpu-share does not take this value; nil: it does. It is KEY:VALUE, each key once, with
-- commas between them.
local function fault_of_value(text, where)
	local no_value = "%s%s is no value of --gpu-share; write for example tq:60,lock:auto (--gpu-share=help lists all keys)"
	local given = {}
	if #text > LONGEST then
		return string.format(no_value, shown(text), where)
	end
	for pair in string.gmatch(text .. ",", "([^,]*),") do
		local key, value = string.match(pair, "^([^:]*):(.*)$")
		local check = key and M.keys[key]
		if not check or not check(value) then
			return string.format(no_value, shown(pair), where)
		end
		if given[key] then
			return string.format("%s%s: %s is given twice; give each key once", shown(text), where, key)
		end
		given[key] = value
	end
	local said = said_by(given)
	for _, pair in ipairs(CONFLICTS) do
		if said[pair[1]] and said[pair[2]] then
			return shown(text) .. where .. ": " .. string.format(pair[3], said.request, said.limit)
		end
	end
	return nil
end

-- Whether --gpu-share takes this value.
function M.is_value(text)
	return fault_of_value(text, "") == nil
end

local function fault_of_sharing(job, option)
	local nodes = job.min_nodes or 1
	if nodes > 1 and nodes < slurm.NO_VAL and not M.several_nodes then
		return REFUSALS.several_nodes
	end
	if asks_for(job, "gpu") then
		return REFUSALS.both
	end
	if option and job.shared == EXCLUSIVE then
		return REFUSALS.exclusive
	end
	local from_environment = environment_of(job)
	if not option and from_environment then
		return fault_of_value(from_environment, " of the environment variable GPU_SHARE")
	end
	return nil
end

function M.fault_of(job)
	local option = option_of(job)
	local fault = option and fault_of_value(option, "")
	if fault then
		return fault
	end
	if asks_for(job, "shard") then
		return fault_of_sharing(job, option)
	end
	-- Of a heterogeneous job only some components may share; each comes here by itself.
	if not option or job.het_job_offset ~= nil and job.het_job_offset ~= slurm.NO_VAL then
		return nil
	end
	if asks_for(job, "gpu") then
		return REFUSALS.whole
	end
	return REFUSALS.no_shard
end

-- The time until which jobs are put off for the placer; nil: the placer does not run.
local function put_off_until(begin)
	local file = io.open(ALIVE, "r")
	local text = file and file:read(64) or ""
	if file then
		file:close()
	end
	local valid, hold = string.match(text, "^(%d+) (%d+)\n$")
	local now = os.time()
	valid, hold = tonumber(valid), tonumber(hold)
	if not valid or valid < now or valid > now + LONGEST_ALIVE or hold > LONGEST_HOLD then
		return nil
	end
	return math.max(begin, now) + hold
end

local function is_placed(text)
	local request = part(string.match("," .. text, ",request:([^,]*)") or "0")
	local sm = part(string.match("," .. text, ",sm:([^,]*)") or "1")
	return string.find("," .. text, ",%l*%-?affinity:") ~= nil
		or string.find("," .. text, ",exclusion:", 1, true) ~= nil
		or string.find("," .. text, ",chain:", 1, true) ~= nil
		or string.find("," .. text, ",class:o", 1, true) ~= nil
		or string.find("," .. text, ",space:", 1, true) ~= nil
		or request ~= nil and request > 0
		or sm ~= nil and sm < 1
end

-- A job with labels, a chain, a request, a class or a mode begins when gpu-lease-placer has found where it fits. It finds the
-- job by the mark in AdminComment, which it takes away. If it does not come, the job begins by
-- itself when the time is over. A job that has to begin at once, or within a time, and a component
-- of a heterogeneous job are not put off.
function M.put_off(job)
	local text = option_of(job) or environment_of(job)
	local begin = job.begin_time or 0
	if
		not text
		or not asks_for(job, "shard")
		or not is_placed(text)
		or job.immediate == 1
		or (job.deadline or 0) ~= 0
		or (job.het_job_offset ~= nil and job.het_job_offset ~= slurm.NO_VAL)
	then
		return
	end
	local till = put_off_until(begin)
	local mark = till and string.format("[gpu-lease-placer %d %d %s]", begin, till, text)
	local comment = mark and (job.admin_comment and job.admin_comment .. " " or "") .. mark
	if comment and #comment <= LONGEST_COMMENT then
		job.begin_time = till
		job.admin_comment = comment
	end
end

return M
