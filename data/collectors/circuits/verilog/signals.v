// Filters, transforms and networks of sums: words of signals in, words of signals out.

module fir #(parameter TAPS = 8, W = 8, C = 181) (input clk, input [7:0] d, output [7:0] q);
  reg [W-1:0] line [0:TAPS-1];
  reg [2*W-1:0] sum;
  integer i;
  always @* begin
    sum = 0;
    for (i = 0; i < TAPS; i = i + 1) sum = sum + line[i] * ((C * (i + 3) * (i + 7)) % 127);
  end
  always @(posedge clk) begin
    line[0] <= d;
    for (i = 1; i < TAPS; i = i + 1) line[i] <= line[i-1];
  end
  fold #(2*W) out (clk, sum, q);
endmodule

module fir_transposed #(parameter TAPS = 8, W = 12) (input clk, input [7:0] d, output [7:0] q);
  reg [W+7:0] sums [0:TAPS];
  integer i;
  always @(posedge clk) begin
    sums[0] <= 0;
    for (i = 1; i <= TAPS; i = i + 1) sums[i] <= sums[i-1] + d * ((i * i * 29 + 5) % 61);
  end
  fold #(W+8) out (clk, sums[TAPS], q);
endmodule

module cic #(parameter STAGES = 3, W = 16) (input clk, input [7:0] d, output [7:0] q);
  reg [W-1:0] sums [0:STAGES], lines [0:STAGES], olds [0:STAGES];
  integer i;
  always @(posedge clk) begin
    sums[0] <= d;
    for (i = 1; i <= STAGES; i = i + 1) sums[i] <= sums[i] + sums[i-1];
    lines[0] <= sums[STAGES];
    for (i = 1; i <= STAGES; i = i + 1) begin
      olds[i] <= lines[i-1];
      lines[i] <= lines[i-1] - olds[i];
    end
  end
  fold #(W) out (clk, lines[STAGES], q);
endmodule

module biquad #(parameter W = 12, SECTIONS = 1) (input clk, input [7:0] d, output [7:0] q);
  wire signed [W-1:0] y [0:SECTIONS];
  genvar g;
  assign y[0] = {d, {W-8{1'b0}}};
  generate for (g = 0; g < SECTIONS; g = g + 1) begin : section
    reg signed [W-1:0] one, two, now;
    wire signed [2*W-1:0] sum = y[g] * 37 + one * (91 + g) - two * (45 + g);
    always @(posedge clk) begin
      two <= one;
      one <= sum >>> 7;
      now <= one + two;
    end
    assign y[g+1] = now;
  end endgenerate
  fold #(W) out (clk, y[SECTIONS], q);
endmodule

module butterfly #(parameter W = 8, N = 4) (input clk, input [7:0] d, output [7:0] q);
  wire [N*W-1:0] x;
  reg signed [W-1:0] v [0:N-1];
  reg signed [W-1:0] a, b;
  reg [N*W-1:0] r;
  integer i, s;
  widen #(N*W) in (clk, d, x);
  always @* begin
    for (i = 0; i < N; i = i + 1) v[i] = x[i*W +: W];
    for (s = 1; s < N; s = 2 * s)
      for (i = 0; i < N; i = i + 1)
        if ((i & s) == 0) begin
          a = v[i] + v[i+s];
          b = v[i] - v[i+s];
          v[i] = a;
          v[i+s] = b;
        end
    for (i = 0; i < N; i = i + 1) r[i*W +: W] = v[i];
  end
  fold #(N*W) out (clk, r, q);
endmodule

module dense #(parameter IN = 8, OUT = 4, W = 4) (input clk, input [7:0] d, output [7:0] q);
  wire [IN*W-1:0] x;
  reg signed [2*W+3:0] sum;
  reg [OUT*W-1:0] r;
  integer i, o;
  widen #(IN*W) in (clk, d, x);
  always @* for (o = 0; o < OUT; o = o + 1) begin
    sum = 0;
    for (i = 0; i < IN; i = i + 1)
      sum = sum + $signed({1'b0, x[i*W +: W]}) * (((o * 37 + i * 11 + 5) % 7) - 3);
    r[o*W +: W] = sum < 0 ? 0 : sum[2*W-1:W];
  end
  fold #(OUT*W) out (clk, r, q);
endmodule

module systolic #(parameter N = 2, W = 4) (input clk, input rst, input [7:0] d, output [7:0] q);
  wire [2*N*W-1:0] x;
  wire [W-1:0] a [0:N-1][0:N], b [0:N][0:N-1];
  wire [N*N*2*W-1:0] r;
  genvar i, j;
  widen #(2*N*W) in (clk, d, x);
  generate
    for (i = 0; i < N; i = i + 1) begin : edges
      assign a[i][0] = x[i*W +: W];
      assign b[0][i] = x[(N+i)*W +: W];
      for (j = 0; j < N; j = j + 1) begin : cells
        reg [W-1:0] right, down;
        reg [2*W-1:0] sum;
        always @(posedge clk) begin
          right <= a[i][j];
          down <= b[i][j];
          sum <= rst ? 0 : sum + a[i][j] * b[i][j];
        end
        assign a[i][j+1] = right;
        assign b[i+1][j] = down;
        assign r[(i*N+j)*2*W +: 2*W] = sum;
      end
    end
  endgenerate
  fold #(N*N*2*W) out (clk, r, q);
endmodule

module cordic #(parameter W = 12, STAGES = 6, PIPED = 0) (input clk, input [7:0] d, output [7:0] q);
  wire [2*W-1:0] in_xy;
  wire signed [W-1:0] x [0:STAGES], y [0:STAGES];
  genvar g;
  widen #(2*W) in (clk, d, in_xy);
  assign x[0] = in_xy[W-1:0];
  assign y[0] = in_xy[2*W-1:W];
  generate for (g = 0; g < STAGES; g = g + 1) begin : step
    wire signed [W-1:0] nx = y[g] < 0 ? x[g] - (y[g] >>> g) : x[g] + (y[g] >>> g);
    wire signed [W-1:0] ny = y[g] < 0 ? y[g] + (x[g] >>> g) : y[g] - (x[g] >>> g);
    if (PIPED) begin
      reg signed [W-1:0] hx, hy;
      always @(posedge clk) begin
        hx <= nx;
        hy <= ny;
      end
      assign x[g+1] = hx;
      assign y[g+1] = hy;
    end else begin
      assign x[g+1] = nx;
      assign y[g+1] = ny;
    end
  end endgenerate
  fold #(2*W) out (clk, {x[STAGES], y[STAGES]}, q);
endmodule

module median #(parameter N = 5, W = 8) (input clk, input [7:0] d, output [7:0] q);
  reg [W-1:0] line [0:N-1];
  reg [W-1:0] v [0:N-1];
  reg [W-1:0] t;
  integer i, s;
  always @* begin
    for (i = 0; i < N; i = i + 1) v[i] = line[i];
    for (s = 0; s < N; s = s + 1)
      for (i = s % 2; i + 1 < N; i = i + 2)
        if (v[i] > v[i+1]) begin
          t = v[i];
          v[i] = v[i+1];
          v[i+1] = t;
        end
  end
  always @(posedge clk) begin
    line[0] <= d;
    for (i = 1; i < N; i = i + 1) line[i] <= line[i-1];
  end
  fold #(W) out (clk, v[N/2], q);
endmodule
