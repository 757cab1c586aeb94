"""Files of delays are read as nextpnr writes them."""

from forerun.data.collectors.circuits.tables import Delays

TEXT = r"""(DELAYFILE
  (SDFVERSION "3.0")
  (TIMESCALE 1ps)
  (CELL
    (CELLTYPE "top")
    (INSTANCE )
    (DELAY
      (ABSOLUTE
        (INTERCONNECT x\[3\]_LC/O q\$sb_io/D_OUT_0 (2208:2209:2210) (2208:2208:2208))
        (INTERCONNECT x\[3\]_LC/COUT y_LC/CIN (0:0:0) (0:0:0))
      )
    )
  )
  (CELL
    (CELLTYPE "ICESTORM_LC")
    (INSTANCE x\[3\]_LC)
    (DELAY
      (ABSOLUTE
        (IOPATH I2 COUT (231:231:231) (240:240:240))
        (IOPATH (posedge CLK) O (540:540:540) (540:540:540))
      )
    )
    (TIMINGCHECK
      (SETUPHOLD (posedge I2) (posedge CLK) (398:398:398) (0:0:0))
      (SETUPHOLD (negedge I2) (posedge CLK) (397:397:397) (0:0:0))
    )
    )
  (CELL
    (CELLTYPE "SB_IO")
    (INSTANCE q\$sb_io)
    )
)
"""


def test_delays_have_plain_names_and_the_longer_edge(tmp_path):
    path = tmp_path / "one.sdf"
    path.write_text(TEXT)
    found = Delays.read(path)
    assert found.kinds == {"x[3]_LC": "ICESTORM_LC", "q$sb_io": "SB_IO"}
    assert found.nets == {
        (("x[3]_LC", "O"), ("q$sb_io", "D_OUT_0")): 2208,
        (("x[3]_LC", "COUT"), ("y_LC", "CIN")): 0,
    }
    assert found.paths == {("x[3]_LC", "I2", "COUT"): 240, ("x[3]_LC", "CLK", "O"): 540}
    assert found.setups == {("x[3]_LC", "I2", "CLK"): 398}
