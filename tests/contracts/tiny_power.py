"""Tiny upstream files of jobs under power limits, in their own format, made up."""

JOBS = (
    ("cifar100", "shufflenetv2", 64, "adadelta"),
    ("cifar100", "shufflenetv2", 256, "adadelta"),
    ("squad", "bert_base_uncased", 16, "adamw"),
)
HEAD = "dataset,network,batch_size,optimizer,power_limit,time_per_epoch,average_power"
EPOCHS = "dataset,network,batch_size,optimizer,learning_rate,run,target_metric,target_epoch"


def zeus_powercap() -> dict[str, str]:
    trace = "examples/research_reproducibility/zeus_nsdi23/trace"
    files = {}
    for gpu, most in (("a40", 300), ("p100", 250), ("v100", 250)):
        rows = [HEAD]
        for place, (dataset, network, batch, optimizer) in enumerate(JOBS):
            for limit in range(125, most + 1, 25):
                power = min(0.97 * limit, 130.0 + 30.0 * place)
                time = 100.0 * (place + 1) * (220.0 / power) ** 0.6
                rows.append(f"{dataset},{network},{batch},{optimizer},{limit},{time},{power}")
        files[f"{trace}/summary_power_{gpu}.csv"] = "\n".join(rows) + "\n"
    jobs = [f"cifar100,shufflenetv2,64,adadelta,0.1,{r},0.6,{r}.0" for r in (1, 2)]
    jobs.append("cifar100,shufflenetv2,64,adadelta,0.1,3,0.6,")
    files[f"{trace}/summary_train.csv"] = "\n".join([EPOCHS, *jobs]) + "\n"
    window = "__GlobalPowerLimitOptimizer"
    for gpu in ("A40", "V100"):
        head = "start_time,window_name,elapsed_time,gpu0_energy,gpu1_energy"
        rows = [f"{9 * n}.5,{window}_{250 - 50 * n},{8.0 + n},{1600.0},{1440.0}" for n in range(3)]
        files[f"tests/profile_data/{gpu}+resnet50+gpu0,1.csv"] = "\n".join([head, *rows]) + "\n"
    return files
