import nbformat
from tests.docs import test_notebooks as t
CODE = """
import forerun.models.bundled as b
from forerun.models.roofline import Roofline
from forerun.models.prediction import Predictions
class S:
    def predict(self,q):
        r=Roofline().predict(q).values['latency_ms']
        return Predictions({'latency_ms':r*2,'power_w':r*0+100},{'latency_ms':r*1.5},{'latency_ms':r*3},0.9)
b.bundled=lambda: b.LoadedPredictor(S(),'0'*12,'2000-01-01','')
"""
def test_it(monkeypatch, tmp_path):
    orig=t.read
    def read(path):
        nb=orig(path); nb.cells.insert(0,nbformat.v4.new_code_cell(CODE)); return nb
    monkeypatch.setattr(t,'read',read)
    monkeypatch.setattr(t,'PRETRAINED',t.REPOSITORY/'pyproject.toml')
    t.test_a_notebook_runs_and_shows_a_table_and_a_picture(t.NOTEBOOKS[0], tmp_path)
