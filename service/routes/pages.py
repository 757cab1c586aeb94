"""The front page, and what each kind of problem means."""

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse

from forerun.service.problems import kinds

router = APIRouter(include_in_schema=False)

FRONT = """<!doctype html><html lang="en"><meta charset="utf-8"><title>forerun</title>
<meta name="viewport" content="width=device-width"><style>
body{font:17px/1.6 system-ui,sans-serif;max-width:42rem;margin:4rem auto;padding:0 1rem}
pre{background:#f3f5f7;padding:1rem;overflow:auto;border-radius:6px}a{color:#0b5cad}</style>
<h1>forerun</h1>
<p>What will this workload cost on that hardware: how long, how much memory, how much power?</p>
<pre>curl --data-binary @model.onnx \\
  'ORIGIN/v1/predict/model?device=l4&amp;precision=amp'</pre>
<p><a href="/docs">All endpoints</a> · <a href="/v1/devices">Devices</a> ·
<a href="/v1/models">Predictors</a> · <a href="/metrics">Metrics</a></p>
<script>const p=document.querySelector("pre");
p.textContent=p.textContent.replace("ORIGIN",location.origin)</script></html>"""


@router.get("/", response_class=HTMLResponse)
async def front() -> HTMLResponse:
    """How to ask, and where to read on."""
    return HTMLResponse(FRONT)


@router.get("/problems/{slug}", response_class=HTMLResponse)
async def problem(slug: str) -> HTMLResponse:
    """What a kind of problem means."""
    meanings = kinds()
    if slug not in meanings:
        raise HTTPException(404, "Not Found")
    return HTMLResponse(f"<!doctype html><title>{slug}</title><h1>{slug}</h1><p>{meanings[slug]}")
