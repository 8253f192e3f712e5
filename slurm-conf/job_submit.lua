-- job_submit.lua: refuses jobs that cannot share before they exist, and puts off jobs that
-- gpu-lease-placer has to place, if that runs (gpu_share.lua decides which).
--
-- On the host of slurmctld, in the folder of slurm.conf, with JobSubmitPlugins=lua there. A site that
-- has a job_submit.lua already adds the parts with gpu_share to it. slurmctld reads this file
-- again when it has changed, and gpu_share.lua with it: touch this one after an update of the other.

local folder = string.match(os.getenv("SLURM_CONF") or "/etc/slurm/slurm.conf", "^(.*)/") or "."
local found, gpu_share = pcall(dofile, folder .. "/gpu_share.lua")
if not found then
	-- Jobs go on without this check: their nodes refuse what cannot share as well.
	slurm.log_error("gpu-share: %s", tostring(gpu_share))
end
-- Where peers.port is set on all nodes, jobs on several nodes can share GPUs: remove the two dashes.
-- if found then gpu_share.several_nodes = true end

function slurm_job_submit(job, partitions, uid)
	local fault = found and gpu_share.fault_of(job)
	if fault then
		slurm.log_user("gpu-share: %s", fault)
		return slurm.ERROR
	end
	if found then
		gpu_share.put_off(job)
	end
	return slurm.SUCCESS
end

function slurm_job_modify(job, record, partitions, uid)
	return slurm.SUCCESS
end

return slurm.SUCCESS
