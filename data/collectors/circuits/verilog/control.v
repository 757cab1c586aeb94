// Control: machines of states, arbiters, timers, encoders and serial lines.

module state_machine #(parameter STATES = 16, SEED = 1) (input clk, input rst, input [7:0] d, output [7:0] q);
  localparam B = $clog2(STATES);
  reg [B-1:0] state, next;
  reg [7:0] r;
  integer i;
  always @* begin
    next = state;
    r = 0;
    for (i = 0; i < STATES; i = i + 1)
      if (state == i) begin
        r = (i * 73 + SEED * 41) % 256;
        if (d[(i + SEED) % 8]) next = (i * 5 + SEED) % STATES;
        else if (d[(3 * i + 1) % 8]) next = (i * 3 + SEED + 1) % STATES;
        else if (d[(5 * i + 2) % 8] ^ d[(i + 4) % 8]) next = (i + 1) % STATES;
      end
  end
  always @(posedge clk) state <= rst ? 0 : next;
  fold #(8) out (clk, r, q);
endmodule

module arbiter #(parameter N = 8) (input clk, input rst, input [7:0] d, output [7:0] q);
  wire [N-1:0] asks;
  reg [N-1:0] grant, last;
  reg taken;
  integer i, k, from;
  widen #(N) in (clk, d, asks);
  always @* begin
    grant = 0;
    taken = 0;
    for (k = 0; k < N; k = k + 1)
      if (last[k])
        for (i = 1; i <= N; i = i + 1) begin
          from = (k + i) % N;
          if (!taken && asks[from]) begin
            grant[from] = 1;
            taken = 1;
          end
        end
  end
  always @(posedge clk)
    if (rst) last <= 1;
    else if (taken) last <= grant;
  fold #(N) out (clk, last, q);
endmodule

module priority_encoder #(parameter N = 32) (input clk, input [7:0] d, output [7:0] q);
  wire [N-1:0] x;
  reg [7:0] first, last;
  integer i;
  widen #(N) in (clk, d, x);
  always @* begin
    first = 0;
    last = 0;
    for (i = 0; i < N; i = i + 1) begin
      if (x[i]) last = i;
      if (x[N-1-i]) first = N - 1 - i;
    end
  end
  fold #(16) out (clk, {first, last}, q);
endmodule

module pulse_width #(parameter CHANNELS = 4, W = 8) (input clk, input rst, input [7:0] d, output [7:0] q);
  reg [W-1:0] count, levels [0:CHANNELS-1];
  reg [CHANNELS-1:0] on;
  integer i;
  always @(posedge clk) begin
    count <= rst ? 0 : count + 1;
    if (d[7]) levels[0] <= {levels[0], d[6:0]};
    for (i = 1; i < CHANNELS; i = i + 1) if (d[7] && d[i % 7]) levels[i] <= levels[i-1];
    for (i = 0; i < CHANNELS; i = i + 1) on[i] <= count < levels[i];
  end
  fold #(CHANNELS) out (clk, on, q);
endmodule

module timers #(parameter N = 2, W = 16) (input clk, input rst, input [7:0] d, output [7:0] q);
  reg [W-1:0] left [0:N-1];
  reg [N-1:0] over;
  integer i;
  always @(posedge clk)
    for (i = 0; i < N; i = i + 1)
      if (rst) begin
        left[i] <= 0;
        over[i] <= 0;
      end else if (d == i) left[i] <= {left[i], d};
      else if (left[i] != 0) begin
        left[i] <= left[i] - 1;
        over[i] <= left[i] == 1;
      end
  fold #(N) out (clk, over, q);
endmodule

module serial_line #(parameter CHANNELS = 1, DIVIDE = 10) (input clk, input rst, input [7:0] d, output [7:0] q);
  wire [8*CHANNELS-1:0] r;
  genvar g;
  generate for (g = 0; g < CHANNELS; g = g + 1) begin : line
    reg [9:0] shift;
    reg [DIVIDE-1:0] ticks;
    reg [3:0] bits;
    reg [7:0] got;
    always @(posedge clk)
      if (rst) {shift, ticks, bits, got} <= 0;
      else begin
        ticks <= ticks + g + 1;
        if (ticks == 0) begin
          shift <= {d[g % 8], shift[9:1]};
          bits <= bits == 9 ? 0 : bits + 1;
          if (bits == 9 && shift[0] == 0) got <= shift[8:1];
        end
      end
    assign r[8*g +: 8] = got;
  end endgenerate
  fold #(8*CHANNELS) out (clk, r, q);
endmodule

module decimal_counter #(parameter DIGITS = 4) (input clk, input rst, input [7:0] d, output [7:0] q);
  reg [4*DIGITS-1:0] digits, next;
  reg carry;
  integer i;
  always @* begin
    next = digits;
    carry = d[0];
    for (i = 0; i < DIGITS; i = i + 1)
      if (carry) begin
        carry = digits[4*i +: 4] == 9;
        next[4*i +: 4] = carry ? 0 : digits[4*i +: 4] + 1;
      end
  end
  always @(posedge clk) digits <= rst ? 0 : next;
  fold #(4*DIGITS) out (clk, digits, q);
endmodule
