-- job_submit.lua: refuse --gpu-share without a shard before the job exists.
--
-- Optional (JobSubmitPlugins=lua): without it the job is refused on its node.

local OPTION = "^_SLURM_SPANK_OPTION_gpu_share_gpu_share="

-- Options of SPANK plugins travel in this array, counted from 0, for sbatch, salloc and srun.
local function wants_sharing(job)
	for index = 0, (job.spank_job_env_size or 0) - 1 do
		if string.find(job.spank_job_env[index] or "", OPTION) then
			return true
		end
	end
	return false
end

-- A GRES can stand in any of these.
local function has_shard(job)
	local fields = { job.tres_per_node, job.tres_per_job, job.tres_per_task, job.tres_per_socket, job.gres }
	for _, text in pairs(fields) do
		if type(text) == "string" and string.find(text, "shard") then
			return true
		end
	end
	return false
end

function slurm_job_submit(job, partitions, uid)
	if wants_sharing(job) and not has_shard(job) then
		slurm.log_user("gpu-share: --gpu-share without a shard; add --gres=shard:1")
		return slurm.ERROR
	end
	return slurm.SUCCESS
end

function slurm_job_modify(job, record, partitions, uid)
	return slurm.SUCCESS
end

return slurm.SUCCESS
