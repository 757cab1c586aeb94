"""POST /v1/circuit: how fast a circuit will be on an FPGA, and what it takes of it."""

from fastapi import APIRouter

from forerun.data.circuits.yosys import NetlistIn
from forerun.service.answers.circuits.timing import timing_of
from forerun.service.http.json_bodies import JsonRoute
from forerun.service.http.state import TheAnswers, TheState
from forerun.service.schemas.circuits import CircuitOut

router = APIRouter(prefix="/v1", tags=["circuits"], route_class=JsonRoute)


@router.post("/circuit")
async def circuit(netlist: NetlistIn, answers: TheAnswers, state: TheState) -> CircuitOut:
    """Highest frequency, critical path and resources of a netlist on an iCE40 HX8K.

    The body is the netlist as yosys writes it: `yosys -p "synth_ice40 -top MODULE -json FILE"`.
    """
    return await state.run(lambda: timing_of(netlist, answers.adaptation.current()))
