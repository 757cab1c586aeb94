#!/bin/bash
#SBATCH --nodes=4 --ntasks-per-node=1 --cpus-per-task=16
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export RAY_ADDRESS="$head:6379"
srun --overlap --nodes=1 --ntasks=1 --nodelist="$head" \
  ray start --head --port=6379 --num-cpus="$SLURM_CPUS_PER_TASK" --block &
sleep 20
srun --overlap --nodes=$((SLURM_NNODES - 1)) --ntasks=$((SLURM_NNODES - 1)) --exclude="$head" \
  ray start --address="$RAY_ADDRESS" --num-cpus="$SLURM_CPUS_PER_TASK" --block &
sleep 20
forerun evaluate timm_bench --seeds 3 --engine ray
