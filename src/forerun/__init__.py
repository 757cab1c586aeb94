"""Ask before you run: what will this workload cost on that hardware?

The house has five floors, each importing only the ones below it:
`forerun.data` -> `forerun.features` -> `forerun.models` -> `forerun.training` -> `forerun.service`.
"""

__version__ = "0.2.0"
