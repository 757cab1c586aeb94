"""What the plug-in makes of a job and of an answer, and that its budget bounds every wait."""

import shutil
import subprocess
from pathlib import Path

import pytest

PLUGIN = Path(__file__).parents[3] / "deploy/slurm/forerun.lua"
LUA = next((found for name in ("lua5.1", "lua") if (found := shutil.which(name))), None)
pytestmark = pytest.mark.skipif(LUA is None, reason="needs lua")

PLACES = """
local places = {
  { device = "l4", feature = "l4", gres = "l4" },
  { device = "a100", feature = "a100", gres = "a100" },
  { device = "t4", partition = "old" },
}
"""
ANSWER = """
local function device(name, value)
  local objective = { value = value, low = value - 1, high = value + 1, unit = "ms" }
  local metrics = { latency_ms = { high = value + 1 } }
  return { device = { name = name }, objective = objective, metrics = metrics }
end
local ranked = { device("a100", 11), device("l4", 49) }
local content = { objective = "latency_ms", ranked = ranked, excluded = {} }
"""
JOB = """
local lines = {}
local slurm = {
  log_info = function(...) lines[#lines + 1] = "log " .. string.format(...) end,
  log_user = function(...) lines[#lines + 1] = "user " .. string.format(...) end,
}
local settings = { places = places, choose = CHOOSE }
local job = { comment = "forerun:graph=resnet50", partition = "all" }
forerun.advise(job, settings, slurm, ASKED)
print(job.admin_comment, job.features, job.partition)
for _, line in ipairs(lines) do print(line) end
"""
CONNECTION = """
local time, calls = 100, {}
local function step(name, seconds, ...)
  local answers = { ... }
  return function(self)
    calls[#calls + 1] = string.format("%s %.3f", name, self.left)
    time = time + seconds
    return unpack(answers)
  end
end
local connection = {}
function connection:settimeout(left, mode)
  assert(mode == "t")
  self.left = left
end
local function now() return time end
local function exchange()
  print(pcall(forerun.exchange, connection, "/run/f.sock", "asked", 0.2, now))
  print(table.concat(calls, ", "))
end
"""


def lua(code: str) -> list[str]:
    program = f"local forerun = dofile('{PLUGIN}')\nlocal unpack = unpack or table.unpack\n{code}"
    done = subprocess.run([str(LUA), "-"], input=program, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def advise(asked: str, choose: str = "false") -> list[str]:
    return lua(PLACES + ANSWER + JOB.replace("CHOOSE", choose).replace("ASKED", asked))


def test_a_comment_or_a_variable_names_the_workload():
    printed = lua("""
    print(forerun.text_of({ comment = "forerun:graph=a" }))
    print(forerun.text_of({ comment = "mine", environment = { FORERUN_WORKLOAD = "graph=b" } }))
    print(forerun.text_of({ comment = "about forerun:graph=a", environment = {} }))
    print(forerun.text_of({}))
    """)
    assert printed == ["graph=a", "graph=b", "nil", "nil"]


def test_entries_become_workload_limits_and_options():
    printed = lua("""
    local request, batches = forerun.request_of(
      "graph=123, batch_size=64,precision=amp,objective=energy_j,"
      .. "max_latency_ms=20.5,must_fit=false,batches=1000")
    local workload, limits = request.workload, request.limits
    print(workload.kind, type(workload.graph), workload.graph)
    print(workload.batch_size + 1, workload.precision, workload.batches)
    print(request.objective, limits.latency_ms, limits.must_fit, batches)
    print(forerun.request_of("graph=a").limits)
    """)
    assert printed == [
        "network\tstring\t123",
        "65\tamp\tnil",
        "energy_j\t20.5\tfalse\t1000",
        "nil",
    ]


def test_an_entry_that_is_no_pair_is_named():
    code = "local _, why = pcall(forerun.request_of, 'graph=a,batch'); print(why.mistake)"
    assert lua(code) == ["'batch' is not KEY=VALUE"]


@pytest.mark.parametrize(
    ("job", "devices"),
    [
        ("{}", "l4 a100 t4"),
        ("{ partition = 'all' }", "l4 a100"),
        ("{ partition = 'old,all' }", "l4 a100 t4"),
        ("{ features = 'l4|a100' }", "l4 a100"),
        ("{ features = 'a100&ib' }", "a100"),
        ("{ features = 'a1000' }", "l4 a100 t4"),
        ("{ tres_per_node = 'gres:gpu:a100:2' }", "a100"),
        ("{ tres_per_node = 'gres:gpu:2', partition = 'all' }", "l4 a100"),
    ],
)
def test_partition_features_and_gres_say_where_a_job_may_run(job, devices):
    code = f"print(table.concat(forerun.devices_of(forerun.places_of({job}, places)), ' '))"
    assert lua(PLACES + code) == [devices]


def test_advice_goes_to_the_job_the_log_and_its_owner():
    note = "forerun: latency_ms: a100 11 ms (10 to 12), l4 49 ms (48 to 50)"
    printed = advise("function() return content end")
    assert printed == [f"{note}\tnil\tall", f"log {note}", f"user {note}"]


def test_the_best_device_is_chosen_where_the_job_leaves_it_open():
    printed = advise("function() return content end", choose="true")
    assert printed[0].endswith("; features set to a100\ta100\tall")


@pytest.mark.parametrize(
    ("job", "chosen"),
    [
        ("{ features = 'l4|a100' }", "nil"),
        ("{ tres_per_node = 'gres:gpu:a100:1' }", "nil"),
        ("{}", "features\ta100"),
    ],
)
def test_nothing_is_chosen_against_what_the_job_names(job, chosen):
    code = f"print(forerun.choice_of({job}, forerun.places_of({job}, places), 'a100'))"
    assert lua(PLACES + code) == [chosen]


def test_a_partition_is_chosen_only_among_those_of_the_job():
    code = """
    places = { { device = "l4", partition = "small" }, { device = "a100", partition = "large" } }
    for _, job in ipairs({ {}, { partition = "small,large" }, { partition = "small" } }) do
      print(forerun.choice_of(job, forerun.places_of(job, places), "a100"))
    end
    """
    assert lua(PLACES + code) == ["partition\tlarge", "partition\tlarge", "nil"]


@pytest.mark.parametrize(
    "asked",
    [
        "function() error('down', 0) end",
        "function() return {} end",
        "function() return { ranked = { 1 }, excluded = {} } end",
        "function() content.ranked[1].objective.value = 'x'; return content end",
    ],
)
def test_a_failure_or_a_malformed_answer_leaves_the_job_as_it_came(asked):
    printed = advise(asked, choose="true")
    assert printed[0] == "nil\tnil\tall"
    assert len(printed) == 2
    assert printed[1].startswith("log forerun: no advice: ")


def test_a_comment_of_several_lines_is_one_line_of_the_log():
    job = JOB.replace("forerun:graph=resnet50", "forerun:a\\nerror: b")
    printed = lua(PLACES + ANSWER + job.replace("CHOOSE", "false").replace("ASKED", "nil"))
    said = "forerun: no advice: 'a error: b' is not KEY=VALUE"
    assert printed[1:] == [f"log {said}", f"user {said}"]


@pytest.mark.parametrize(
    ("detail", "said"),
    [
        ("body.limits.latency_ms: Input should be more (given -4)", "max_latency_ms: Input should"),
        ("body.workload.max_latncy_ms: did you mean latency_ms?", "max_latncy_ms: did you mean ma"),
        ("body.objective: Input should be 'latency_ms'", "objective: Input should be 'latency_ms'"),
    ],
)
def test_a_mistake_names_the_keys_of_the_comment(detail, said):
    answer = f'HTTP/1.1 422 Unprocessable\\r\\n\\r\\n{{\\"detail\\":\\"{detail}\\"}}'
    (printed,) = lua(f'local _, why = pcall(forerun.body_of, "{answer}"); print(why.mistake)')
    assert printed.startswith(said)


@pytest.mark.parametrize("status", [404, 422])
def test_what_the_service_finds_wrong_with_a_comment_is_told_to_the_owner(status):
    body = r'{"type":"/problems/x","detail":"batchsize: \\"batchsize\\" is no field","more":"a"}'
    asked = f"function() return forerun.body_of('HTTP/1.1 {status} No\\r\\n\\r\\n{body}') end"
    said = 'forerun: no advice: batchsize: "batchsize" is no field'
    assert advise(asked) == ["nil\tnil\tall", f"log {said}", f"user {said}"]


@pytest.mark.parametrize(
    ("gres", "count"),
    [("gres:gpu:a100:2", 2), ("gres:gpu:4", 4), ("gres/gpu=3", 3), ("gpu:a100", 1), ("tmp:9", 1)],
)
def test_the_number_of_gpus_is_read_of_any_form(gres, count):
    job = f"{{ tres_per_node = '{gres}' }}"
    assert lua(f"print(forerun.gpus_of({job}))") == [str(count)]
    advice = "local asked = function() return content end\n" + JOB.replace("CHOOSE", "false")
    advice = advice.replace("ASKED", "asked").replace(
        'partition = "all" }', f'partition = "all", tres_per_node = "{gres}" }}'
    )
    note = lua(PLACES + ANSWER + advice)[0]
    assert (f"{count} GPUs are requested, and these figures are of one" in note) is (count > 1)


def test_the_five_best_of_many_devices_are_named():
    code = """
    for place = 1, 7 do ranked[place] = device("d" .. place, place) end
    print((forerun.advice_of(content)))
    """
    (printed,) = lua(PLACES + ANSWER + code)
    assert printed.endswith("d5 5 ms (4 to 6) and 2 more")


def test_no_device_within_the_limits_is_advice_and_no_choice():
    asked = """function()
      content.excluded = { { device = { name = "l4" }, reasons = { "too slow" } } }
      content.ranked = {}
      return content
    end"""
    printed = advise(asked, choose="true")
    assert printed[0] == "forerun: no device meets the limits; l4: too slow\tnil\tall"


def test_the_time_of_all_batches_is_a_note():
    (printed,) = lua(PLACES + ANSWER + "print((forerun.advice_of(content, 10000)))")
    assert "; 10000 batches take up to 2 min there" in printed


def test_each_call_gets_what_is_left_of_the_budget():
    printed = lua(
        CONNECTION
        + """
    connection.connect = step("connect", 0.05, 1)
    connection.send = step("send", 0.1, 5)
    connection.receive = step("receive", 0.01, nil, "closed", "answer")
    exchange()
    """
    )
    assert printed == ["true\tanswer", "connect 0.200, send 0.150, receive 0.050"]


@pytest.mark.parametrize("slow", ["connect", "send"])
def test_a_spent_budget_ends_the_exchange(slow):
    printed = lua(
        CONNECTION
        + f"""
    local seconds = {{ {slow} = 0.2 }}
    connection.connect = step("connect", seconds.connect or 0, 1)
    connection.send = step("send", seconds.send or 0, 5)
    exchange()
    """
    )
    assert printed[0] == "false\tno answer within 200 ms"


def test_a_clock_that_is_set_back_does_not_lengthen_a_wait():
    printed = lua(
        CONNECTION
        + """
    connection.connect = step("connect", -3600, 1)
    connection.send = step("send", 0, nil, "timeout")
    exchange()
    """
    )
    assert printed[1] == "connect 0.200, send 0.200"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\n{}", "{}"),
        ("HTTP/1.1 200 OK\\r\\nContent-Length: 3\\r\\n\\r\\n{}", "the answer is cut off"),
        ("HTTP/1.1 503 Busy\\r\\n\\r\\nlater", "status 503: later"),
        ("HTTP/1.1 200 OK\\r\\n", "the answer has no end of its header"),
        ("", "the answer is not HTTP"),
    ],
)
def test_only_a_whole_answer_counts(answer, why):
    (printed,) = lua(f'print(pcall(forerun.body_of, "{answer}"))')
    assert printed.split("\t")[1] == why
