"""Tiny upstream files of memory measurements, in their own format, made up."""

import json

from tests.contracts.tiny_kernel_benchmarks import Cell, workbook


def gpumemnet() -> dict[str, str | bytes]:
    head = "Filename,Depth,Activations-Params,Activation Function,Total Activations"
    head += ",Total Parameters,Batch Size,Max GPU Memory (MiB)"
    head += ",Avg GPUTL,Avg GRACT,Avg SMACT,Avg SMOCC,Avg FP32A"
    layers = "\"[('linear', 8, 40), ('ReLU', 8, 0), ('linear', 2, 18)]\""
    mlp = [head] + [
        f"input:4_output:2_batch:{b}.out,2,{layers},ReLU,22,58,{b},{1449 + b},9.5,.1,.1,.1,.1"
        for b in range(1, 31)
    ]
    fake: list[list[Cell]] = [
        ["Filename", "Batch Size", "Max GPU Memory (MiB)", "GB after Forward"]
    ]
    for model in ("resnet50", "res2net50_14w", "vit_tiny", "tf_mixnet", "cait_m36", "dm_nfnet"):
        for batch, peak in ((8, 3000.0), (16, 4000.0), (32, 2900.0), (64, 39000.0), (128, 1900.0)):
            live = 100.0 * batch
            fake.append([f"{model}_{batch}.out", batch, peak, live, 1.01 * live, 1.02 * live])
    horus: list[list[Cell]] = [["gpumemory_max"] * 11]
    horus.append([1237.0, 1.0, 1.0, "FC on MNIST", 1e-4, 0.1, 0.0, 0.0, 1000.1, 0.0, 0.0])
    fold = {"accuracy": 0.98, "f1": 0.97, "below_diagonal_percentage": 0.02}
    folds = json.dumps([fold | {"confusion_matrix": [[9, 0], [1, 2]]}] * 3)
    return {
        "Datasets/MLP/mlp_data_step1.csv": "\n".join(mlp) + "\n",
        "Datasets/MLP/mlp_data_step2.csv": "\n".join(mlp) + "\n",
        "Related_works/FakeTensor/fake_tensor.xlsx": workbook({"fake": fake}),
        "Related_works/Horus/horus_formula_not_working.xlsx": workbook({"horus": horus}),
        "Ensemble/k_fold_results/mlp_model/mlp.json": folds,
    }
