"""Published values of others, asked at the product's door.

`cases.jsonl` has a row for each: the question as a body of the product's own request, the metric
and the value that a public page prints, and the conditions. `sources.json` has the citations.
Rows stand in the file before the product is asked, and none is dropped or edited because of the
answer; a row is removed only where its source was misread, and a question gets an option that its
source ran with, the reason in `conditions`. No predictor is trained on them.
`exceptions.json` names the rows that are known to be outside an interval of grade A, each with
its likely reason.

`python -m tests.public_cases` asks all and prints the tally; `--json FILE` stores it.
"""
