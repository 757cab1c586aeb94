// Arithmetic: sums, products, quotients, roots, comparisons and counts of bits.

module adder #(parameter W = 16, N = 2) (input clk, input [7:0] d, output [7:0] q);
  wire [N*W-1:0] x;
  reg [W-1:0] sum;
  integer i;
  widen #(N*W) in (clk, d, x);
  always @* begin
    sum = 0;
    for (i = 0; i < N; i = i + 1) sum = sum + x[i*W +: W];
  end
  fold #(W) out (clk, sum, q);
endmodule

module adder_ports #(parameter W = 16) (input clk, input [W-1:0] a, b, output reg [W:0] s);
  reg [W-1:0] x, y;
  always @(posedge clk) begin
    x <= a;
    y <= b;
    s <= x + y;
  end
endmodule

module carry_select #(parameter W = 16, B = 4) (input clk, input [7:0] d, output [7:0] q);
  wire [2*W-1:0] x;
  reg [W-1:0] s;
  reg [B:0] low, high;
  reg carry;
  integer i;
  widen #(2*W) in (clk, d, x);
  always @* begin
    carry = 0;
    for (i = 0; i < W / B; i = i + 1) begin
      low = x[i*B +: B] + x[W + i*B +: B];
      high = low + 1;
      s[i*B +: B] = carry ? high[B-1:0] : low[B-1:0];
      carry = carry ? high[B] : low[B];
    end
  end
  fold #(W) out (clk, s, q);
endmodule

module multiplier #(parameter A = 8, B = 8, STAGES = 0) (input clk, input [7:0] d, output [7:0] q);
  wire [A+B-1:0] x;
  reg [A+B-1:0] line [0:STAGES];
  integer i;
  widen #(A+B) in (clk, d, x);
  always @(posedge clk) begin
    line[0] <= x[A-1:0] * x[A+B-1:A];
    for (i = 0; i < STAGES; i = i + 1) line[i+1] <= line[i];
  end
  fold #(A+B) out (clk, line[STAGES], q);
endmodule

module multiply_accumulate #(parameter W = 8, G = 8) (input clk, input rst, input [7:0] d, output [7:0] q);
  wire [2*W-1:0] x;
  reg signed [2*W+G-1:0] sum;
  widen #(2*W) in (clk, d, x);
  always @(posedge clk)
    if (rst) sum <= 0;
    else sum <= sum + $signed(x[W-1:0]) * $signed(x[2*W-1:W]);
  fold #(2*W+G) out (clk, sum, q);
endmodule

module divider #(parameter W = 8) (input clk, input [7:0] d, output [7:0] q);
  wire [2*W-1:0] x;
  reg [W-1:0] quotient;
  reg [W:0] rest;
  integer i;
  widen #(2*W) in (clk, d, x);
  always @* begin
    rest = 0;
    for (i = W - 1; i >= 0; i = i - 1) begin
      rest = {rest[W-1:0], x[i]};
      quotient[i] = rest >= x[2*W-1:W];
      if (quotient[i]) rest = rest - x[2*W-1:W];
    end
  end
  fold #(2*W) out (clk, {rest[W-1:0], quotient}, q);
endmodule

module divider_serial #(parameter W = 16) (input clk, input start, input [7:0] d, output [7:0] q);
  wire [2*W-1:0] x;
  reg [W-1:0] quotient, divisor;
  reg [W:0] rest;
  wire [W:0] next = {rest[W-1:0], quotient[W-1]};
  widen #(2*W) in (clk, d, x);
  always @(posedge clk)
    if (start) begin
      quotient <= x[W-1:0];
      divisor <= x[2*W-1:W];
      rest <= 0;
    end else begin
      rest <= next >= divisor ? next - divisor : next;
      quotient <= {quotient[W-2:0], next >= divisor};
    end
  fold #(W) out (clk, quotient ^ rest[W-1:0], q);
endmodule

module square_root #(parameter W = 8) (input clk, input [7:0] d, output [7:0] q);
  wire [2*W-1:0] x;
  reg [W-1:0] root;
  reg [2*W+1:0] rest, trial;
  integer i;
  widen #(2*W) in (clk, d, x);
  always @* begin
    root = 0;
    rest = 0;
    for (i = W - 1; i >= 0; i = i - 1) begin
      rest = {rest, x[2*i +: 2]};
      trial = {root, 2'b01};
      if (rest >= trial) begin
        rest = rest - trial;
        root = {root, 1'b1};
      end else root = {root, 1'b0};
    end
  end
  fold #(W) out (clk, root, q);
endmodule

module bit_count #(parameter N = 32, KIND = 0) (input clk, input [7:0] d, output [7:0] q);
  wire [N-1:0] x;
  reg [7:0] count;
  reg found;
  integer i;
  widen #(N) in (clk, d, x);
  always @* begin
    count = 0;
    found = 0;
    for (i = 0; i < N; i = i + 1)
      if (KIND == 0) count = count + x[i];
      else begin
        found = found | x[N-1-i];
        count = count + !found;
      end
  end
  fold #(8) out (clk, count, q);
endmodule

module float_add #(parameter E = 5, M = 10) (input clk, input [7:0] d, output [7:0] q);
  localparam W = E + M;
  wire [2*W-1:0] x;
  wire swap = x[W-1:0] < x[2*W-1:W];
  wire [W-1:0] a = swap ? x[2*W-1:W] : x[W-1:0], b = swap ? x[W-1:0] : x[2*W-1:W];
  reg [M+1:0] sum;
  reg [E-1:0] exponent;
  integer i;
  widen #(2*W) in (clk, d, x);
  always @* begin
    sum = {1'b1, a[M-1:0]} + ({1'b1, b[M-1:0]} >> (a[W-1:M] - b[W-1:M]));
    exponent = a[W-1:M];
    if (sum[M+1]) begin
      sum = sum >> 1;
      exponent = exponent + 1;
    end
    for (i = 0; i < M; i = i + 1)
      if (!sum[M] && exponent != 0) begin
        sum = sum << 1;
        exponent = exponent - 1;
      end
  end
  fold #(W) out (clk, {exponent, sum[M-1:0]}, q);
endmodule
