-- job_submit.lua: refuse what cannot share before the job exists.
--
-- Optional (JobSubmitPlugins=lua). The plugin says the same in sbatch, salloc and srun; this
-- is for jobs that come another way (slurmrestd, a submit host without the plugin).

local OPTION = "^_SLURM_SPANK_OPTION_gpu_share_gpu_share="
local EXCLUSIVE = 0 -- of job.shared

-- Options of SPANK plugins travel in this array, counted from 0, for sbatch, salloc and srun.
local function wants_sharing(job)
	for index = 0, (job.spank_job_env_size or 0) - 1 do
		if string.find(job.spank_job_env[index] or "", OPTION) then
			return true
		end
	end
	return false
end

-- One entry of a list: gres:NAME[:TYPE][:COUNT], gres/NAME[:TYPE][:=]COUNT or without "gres".
local function entry_names(entry, name)
	local rest = string.gsub(entry, "^gres[:/]", "")
	local first, last = string.find(rest, name, 1, true)
	if first ~= 1 or not string.find(string.sub(rest, last + 1), "^[:=]") and #rest ~= last then
		return false
	end
	return not string.find(rest, "^[%w_]+[:=]0$") -- none of them
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

-- A sentence for the user, or nil.
local function fault_of(job)
	local shard = asks_for(job, "shard")
	local nodes = job.min_nodes or 1
	if shard and nodes > 1 and nodes < slurm.NO_VAL then
		return "a job on several nodes cannot share GPUs yet; ask for one node (-N1), or for whole GPUs (--gres=gpu:1 instead of the shard)"
	end
	if not wants_sharing(job) then
		return nil
	end
	if shard and job.shared == EXCLUSIVE then
		return "with --exclusive a job has its GPUs for itself and shares none; leave out --exclusive, or --gpu-share"
	end
	-- Of a heterogeneous job only some components may share; each comes here by itself.
	if shard or job.het_job_offset ~= nil and job.het_job_offset ~= slurm.NO_VAL then
		return nil
	end
	if asks_for(job, "gpu") then
		return "--gpu-share without a shard; ask for --gres=shard:1 instead of whole GPUs, or leave out --gpu-share"
	end
	return "--gpu-share without a shard; add --gres=shard:1"
end

function slurm_job_submit(job, partitions, uid)
	local fault = fault_of(job)
	if fault then
		slurm.log_user("gpu-share: %s", fault)
		return slurm.ERROR
	end
	return slurm.SUCCESS
end

function slurm_job_modify(job, record, partitions, uid)
	return slurm.SUCCESS
end

return slurm.SUCCESS
