"""Second floor: predictors with one protocol, `fit`, `adapt` and `predict`.

Sub-packages by workload (`kernels`, `operators`, `networks`, `processors`, `memory`, `power`,
`architectures`, `hls_designs`, `serving`, `benchmark_suites`, `colocation`) and by tool
(`gaussian_process`, `neural`, `conformal`, `domain`, `adaptation`, `artifact`, `baselines`).
`forerun.models.catalog.PREDICTORS` lists every predictor.
"""
