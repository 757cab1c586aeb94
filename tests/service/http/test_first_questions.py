"""What the first questions of clients read is read before: the usual part before readiness."""

from fastapi.testclient import TestClient

from forerun.service.http import app as service
from tests.waiting import eventually


def test_one_process_asks_usual_questions_as_it_starts_and_the_rest_once_it_answers(
    settings, roofline_folder, monkeypatch
):
    asked = []

    def noted(answers, questions):
        asked.append([(own["device"], own["workload"].get("precision")) for own in questions])

    monkeypatch.setattr(service, "_ask", noted)
    app = service.loaded_app(settings.model_copy(update={"predictor_folder": roofline_folder}))
    assert asked[-1] == [("l4", "amp"), (service.MEASURED, "amp")]
    with TestClient(app) as client:
        assert client.get("/readyz").status_code == 200
        eventually(lambda: asked[-1] == [("l4", "fp32")])
