"""Tiny upstream files of networks and architectures, in their own formats, made up."""

import json
import pickle

DIMS = {
    "linear": ("B,M,N,K", "1,{s},32,64"),
    "add": ("B,H", "{s},1024"),
    "ln": ("B,H", "{s},1024"),
    "conv": (
        "B,Input_Channel,Output_Channel,Kernel_Szie,Input_Size,Stride,Padding",
        "{s},8,16,3,28,1,1",
    ),
}
NVIDIA = ("Tesla P4", "Tesla T4", "NVIDIA A100-PCIE-40GB")
UNSEEN = "NVIDIA A100 80GB PCIe"
HEAD = "OPName,Latency,Device,Kernel Name,Grid x,Grid y,Grid z,Block x,Block y,Block z,"


def _timings(op: str, devices: tuple[str, ...], sizes: range) -> str:
    columns, values = DIMS[op]
    lines = [HEAD + columns]
    for device in devices:
        for size in sizes:
            kernel = "volta_sgemm_128x64_tn" if op == "linear" else '"kernel<4, x>"'
            row = f"{op},{size / 1000},{device} ,{kernel},2,3,1,128,2,1,"
            lines.append(row + values.format(s=size))
    return "\n".join(lines) + "\n"


def neusight() -> dict[str, str]:
    root = "scripts/asplos"
    files = {}
    for op in DIMS:
        for device in (*NVIDIA, UNSEEN) if op == "conv" else NVIDIA:
            path = f"{root}/data/dataset/train/collect/{op}/p2.1.0/{device}.csv"
            files[path] = _timings(op, (device,), range(9000, 9004))
    for op, name in (("linear", "linear"), ("add", "elem"), ("ln", "ln")):
        files[f"{root}/data/dataset/test/{name}.csv"] = _timings(
            op, (*NVIDIA, UNSEEN), range(100, 103)
        )
    for device in (*NVIDIA, UNSEEN):
        sheet = {"Device": device, "Dev_Mem": 8, "Mem_Bw": 192, "Num_Sm": 40, "Core_Per_SM": 64}
        sheet |= {"Freq": 1113, "SingleFLOPs": 5699, "L2Cache": 2}
        key = device.replace(" ", "_")
        files[f"{root}/data/device_configs/{key}.json"] = json.dumps(sheet)
    config = {"model_type": "bert", "num_hidden_layers": 24, "dropout": 0.1}
    files[f"{root}/data/DLmodel_configs/bert_large.json"] = json.dumps(config)
    names = ("embed", "bert_encoder_layer_0_query", "add", "bert_encoder_layer_0_out", "pooler")
    graph = ["Name,OpName,FwOps,BwOps,AccOps,Prev,Next,InputShapes,OutputShape"]
    graph += [f'{n},VECadd,"[[\'VECadd\', (2, 8)]]",[],[],set(),set(),[],"(2, 8)"' for n in names]
    label = {"num_layer": 24, "e2e_latency": 8.0, "fw_latency": 8.0, "bwall_latency": 0.0}
    nodes = ["op,target,input_shapes,fw_latency,bw_latency,acc_latency,output_shape,dtype,Name"]
    nodes += [f'call_module,{n},"[[2, 8]]",0.25,0.0,0.0,"(2, 8)",torch.float32,{n}' for n in names]
    run = "bert_large-inf-512-8"
    files[f"{root}/results/opgraph/{run}.csv"] = "\n".join(graph) + "\n"
    files[f"{root}/label/Tesla_T4/{run}.json"] = json.dumps(label)
    files[f"{root}/label/Tesla_T4/{run}.csv"] = "\n".join(nodes) + "\n"
    guess = json.dumps({"e2e_latency": 9.5})
    files[f"{root}/results/prediction/Tesla_T4/micro/{run}.json"] = guess
    return files


def timm_bench() -> dict[str, str]:
    models = [f"{family}_{i}" for family in ("vit", "resnet", "Mixer", "dla", "nf") for i in (1, 2)]
    head = "model,infer_img_size,infer_batch_size,infer_samples_per_sec,infer_step_time,param_count"
    devices = ("pt210-cu121-rtx3090", "pt291-cu128-4090-dynamo", "pt291-cu130-pro6000maxq")
    files = {}
    for tail in (*devices, "pt240-cpu-i9_10940x-dynamo"):
        rows = [f"{m},224,256,{1000 + i},{256 / (1000 + i)},{i + 1}" for i, m in enumerate(models)]
        rows.append("too_large,224,,,,900")
        precision = "fp32" if "cpu" in tail else "amp"
        path = f"results/benchmark-infer-{precision}-nchw-{tail}.csv"
        files[path] = "\n".join([head, *rows]) + "\n"
    return files


def torch_op_energy() -> dict[str, str]:
    stamps = "2024-11-17_14-45-42 2024-11-17_14-46-06"
    numbers = "0.0003 30.0 0.01 1.0 57950 19.5 100.0 3.5 641.2 13.6 0.0004"
    train = "0.0011 2e-06 110.0 3.8 20.0 101.0 2.0 826.1 10.2"

    def log(tail: str = "") -> str:
        lines = ["FutureWarning: (1, 2)", "Linear(in_features=8, out_features=4, bias=True)"]
        for width in range(1, 9):
            for layer in (f"Linear(in_features={width}, out_features=4, bias=True)", "ReLU()"):
                lines.append(f"{layer} (32, {width}) {numbers} {stamps} 5e-07 {tail}".strip())
        return "\n".join([*lines, "done"]) + "\n"

    networks = "resnet18 (32, 3, 56, 56)\nwarmup complete resnet18 (32, 3, 56, 56)\n"
    networks += f"ResNet (32, 3, 56, 56) {numbers} {stamps} 2e-05\n"
    root = "functional_general_benchmark"
    return {
        f"{root}/finalbench_all_operations_A30": log(),
        f"{root}/finalbench_all_operations_A30_no_tc": log(),
        f"{root}/finalbench_all_operations_RTX2080TI": log(),
        f"{root}/operations_A30_no_tc_train": log(train),
        f"{root}/A30_no_tc_fullmodel_train": networks,
        f"{root}/fullmodel_A30": networks,
    }


def nas_latency() -> dict[str, str | bytes]:
    """Sixteen cells and eight networks, whose times tell their place and device."""
    choices = ("nor_conv_3x3", "skip_connect", "none", "avg_pool_3x3")
    codes = {"nor_conv_3x3": 3, "skip_connect": 1, "none": 0, "avg_pool_3x3": 4}
    cells = [(a, b) for a in choices for b in choices]
    names = [f"|{a}~0|+|none~0|{b}~1|+|{b}~0|none~1|{a}~2|" for a, b in cells]
    devices = ("1080ti_1", "pixel3", "fpga", "raspi4")
    whole = {"ks": [3] * 20, "e": [6] * 20, "d": [2] * 5}
    edge = {
        (codes[a], 0, codes[b], codes[b], 0, codes[a]): (place + 1) / 1e3
        for place, (a, b) in enumerate(cells[:9])
    }
    files: dict[str, str | bytes] = {
        "data/nasbench201/str_arch2idx.pt": _plain({n: i for i, n in enumerate(names)}),
        "data/fbnet/metainfo.pt": _plain({"arch": [{"op_idx_list": [i] * 22} for i in range(8)]}),
        "data/ofa/ofa_archs.pt": _plain({"arch": [{**whole, "r": 128 + i} for i in range(8)]}),
        "drive/embedded-tpu-edge-tpu-int8.pickle": _plain(edge),
    }
    for number, device in enumerate(devices):
        for space, count in (("nasbench201", 16), ("fbnet", 8), ("ofa", 8)):
            times = [float(number + 1 + place / 100) for place in range(count)]
            files[f"data/{space}/latency/{device}.pt"] = _plain(times)
    for stem, factor in (("rice_raspi4", 4), ("rice_pixel3", 2), ("true_a76", 7)):
        files[f"latency_data/{stem}.pickle"] = _plain([factor + p / 100 for p in (5, 3, 1)])
    return files


def _plain(content: object) -> bytes:
    return pickle.dumps(content, protocol=2)
