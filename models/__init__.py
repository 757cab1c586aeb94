"""Predictors with a common protocol: `fit`, `adapt` and `predict`.

Sub-packages by workload (`kernels`, `kernel_experts`, `networks`, `processors`, `memory`, `power`,
`architectures`, `hls_designs`, `serving`, `benchmark_suites`, `colocation`, ...) and by tool
(`gaussian_process`, `gradient_boosting`, `conformal`, `domain`, `adaptation`, `artifact`,
`baselines`). `forerun.models.catalog.PREDICTORS` lists every predictor.
"""
