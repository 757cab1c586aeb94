-- Slurm's job_submit plug-in: advice of a running `forerun serve --unix-socket` for each job that names its workload.
-- Copy it with forerun.lua into the folder of slurm.conf, set `JobSubmitPlugins=lua` there, and edit these settings.

local settings = {
  socket = "/run/forerun/forerun.sock",
  budget_ms = 200,   -- for connecting, asking and reading together; then the job is submitted as it came
  choose = false,    -- true: also narrow a job whose place is open to the best device
  -- Where jobs can run: the device, and the partition, feature (--constraint) or GRES type that lead to it.
  places = {
    { device = "l4", partition = "l4", feature = "l4", gres = "l4" },
    { device = "a100-pcie-80gb", partition = "a100", feature = "a100", gres = "a100" },
  },
}

local folder = debug.getinfo(1, "S").source:match("^@(.*)/[^/]*$") or "."
local loaded, forerun = pcall(dofile, folder .. "/forerun.lua")
if not loaded then
  slurm.log_error("forerun: no advice: %s", tostring(forerun))
end

function slurm_job_submit(job, partitions, submit_uid)
  if loaded then
    forerun.advise(job, settings, slurm)
  end
  return slurm.SUCCESS
end

function slurm_job_modify(job, record, partitions, modify_uid)
  return slurm.SUCCESS
end

return slurm.SUCCESS
