"""The OpenAPI document is whole for everybody, also for those who ask for it first together."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from forerun.service.http.app import create_app

TOGETHER = 8


def test_threads_that_ask_at_once_get_the_same_document(settings, documents):
    documents.clear()
    app, start = create_app(settings), Barrier(TOGETHER)

    def ask(number):
        start.wait()
        return app.openapi()

    with ThreadPoolExecutor(TOGETHER) as pool:
        documents = list(pool.map(ask, range(TOGETHER)))
    assert all(each is documents[0] for each in documents)
    assert "/v1/predict" in documents[0]["paths"]
