// Codes, checks and ciphers: exclusive ors, tables, rotations and additions.

module crc #(parameter W = 16, B = 8, POLY = 16'h1021) (input clk, input rst, input [7:0] d, output [7:0] q);
  wire [B-1:0] x;
  reg [W-1:0] state, next;
  integer i;
  widen #(B) in (clk, d, x);
  always @* begin
    next = state;
    for (i = 0; i < B; i = i + 1)
      next = (next[W-1] ^ x[i]) ? (next << 1) ^ POLY : next << 1;
  end
  always @(posedge clk) state <= rst ? {W{1'b1}} : next;
  fold #(W) out (clk, state, q);
endmodule

module scrambler #(parameter N = 31, TAP = 28, B = 8) (input clk, input [7:0] d, output [7:0] q);
  wire [B-1:0] x;
  reg [N-1:0] state, next;
  reg [B-1:0] r;
  integer i;
  widen #(B) in (clk, d, x);
  always @* begin
    next = state;
    for (i = 0; i < B; i = i + 1) begin
      r[i] = x[i] ^ next[N-1] ^ next[TAP-1];
      next = {next[N-2:0], r[i]};
    end
  end
  always @(posedge clk) state <= next;
  fold #(B) out (clk, r, q);
endmodule

module hamming #(parameter N = 16) (input clk, input [7:0] d, output [7:0] q);
  localparam P = $clog2(N + 1);
  wire [N-1:0] x;
  reg [P-1:0] syndrome;
  reg [N-1:0] fixed;
  integer i;
  widen #(N) in (clk, d, x);
  always @* begin
    syndrome = 0;
    for (i = 0; i < N; i = i + 1) if (x[i]) syndrome = syndrome ^ (i + 1);
    for (i = 0; i < N; i = i + 1) fixed[i] = x[i] ^ (syndrome == i + 1);
  end
  fold #(N) out (clk, fixed, q);
endmodule

module galois #(parameter W = 8, N = 1, POLY = 8'h1b) (input clk, input [7:0] d, output [7:0] q);
  wire [2*N*W-1:0] x;
  reg [W-1:0] a, p;
  reg [N*W-1:0] r;
  integer i, k;
  widen #(2*N*W) in (clk, d, x);
  always @* for (k = 0; k < N; k = k + 1) begin
    a = x[2*k*W +: W];
    p = 0;
    for (i = 0; i < W; i = i + 1) begin
      if (x[(2*k+1)*W + i]) p = p ^ a;
      a = a[W-1] ? (a << 1) ^ POLY : a << 1;
    end
    r[k*W +: W] = p;
  end
  fold #(N*W) out (clk, r, q);
endmodule

module substitution #(parameter N = 1, ROUNDS = 1, SEED = 1) (input clk, input [7:0] d, output [7:0] q);
  wire [8*N-1:0] x;
  reg [8*N-1:0] v, w;
  integer i, r;
  function [7:0] box(input [7:0] a);  // a power in a field of 257 elements, cut to a byte
    reg [31:0] p;
    begin
      p = (a + SEED) * (a + 1) % 257;
      p = p * p % 257 * (a + 3) % 257;
      box = p[7:0] ^ (a >> 3);
    end
  endfunction
  reg [7:0] boxes [0:255];
  initial for (i = 0; i < 256; i = i + 1) boxes[i] = box(i);
  widen #(8*N) in (clk, d, x);
  always @* begin
    v = x;
    for (r = 0; r < ROUNDS; r = r + 1) begin
      for (i = 0; i < N; i = i + 1) w[8*i +: 8] = boxes[v[8*i +: 8]];
      v = {w, w[8*N-1:8*N-3]} ^ (w >> 5);
    end
  end
  fold #(8*N) out (clk, v, q);
endmodule

module rotate_add #(parameter W = 16, ROUNDS = 2, PIPED = 0) (input clk, input [7:0] d, output [7:0] q);
  wire [4*W-1:0] x;
  wire [W-1:0] a [0:ROUNDS], b [0:ROUNDS], c [0:ROUNDS], e [0:ROUNDS];
  genvar g;
  widen #(4*W) in (clk, d, x);
  assign {a[0], b[0], c[0], e[0]} = x;
  generate for (g = 0; g < ROUNDS; g = g + 1) begin : round
    wire [W-1:0] na = a[g] + b[g], ne = e[g] ^ na, re = {ne, ne} >> (W - 7), nc = c[g] + re;
    wire [W-1:0] nb = b[g] ^ nc, rb = {nb, nb} >> (W - 5);
    if (PIPED) begin
      reg [W-1:0] ha, hb, hc, he;
      always @(posedge clk) {ha, hb, hc, he} <= {na, rb, nc, re};
      assign {a[g+1], b[g+1], c[g+1], e[g+1]} = {ha, hb, hc, he};
    end else assign {a[g+1], b[g+1], c[g+1], e[g+1]} = {na, rb, nc, re};
  end endgenerate
  fold #(4*W) out (clk, {a[ROUNDS], b[ROUNDS], c[ROUNDS], e[ROUNDS]}, q);
endmodule

module viterbi #(parameter STATES = 4, W = 5) (input clk, input rst, input [7:0] d, output [7:0] q);
  reg [W-1:0] cost [0:STATES-1];
  reg [STATES-1:0] chosen;
  reg [W-1:0] a, b;
  wire [STATES*W-1:0] r;
  integer i;
  genvar g;
  generate for (g = 0; g < STATES; g = g + 1) begin : flat
    assign r[g*W +: W] = cost[g];
  end endgenerate
  always @(posedge clk)
    for (i = 0; i < STATES; i = i + 1) begin
      a = cost[(2 * i) % STATES] + (d[1:0] ^ i);
      b = cost[(2 * i + 1) % STATES] + (d[3:2] ^ (i >> 1));
      chosen[i] <= a[W-1] ^ b[W-1] ? a < b : b < a;
      cost[i] <= rst ? i : (a < b ? a : b);
    end
  fold #(STATES*W + STATES) out (clk, {chosen, r}, q);
endmodule

module gray #(parameter W = 8, N = 1) (input clk, input [7:0] d, output [7:0] q);
  reg [W-1:0] count [0:N-1];
  reg [N*W-1:0] r, back;
  integer i, k;
  always @* for (k = 0; k < N; k = k + 1) begin
    r[k*W +: W] = count[k] ^ (count[k] >> 1);
    back[k*W + W - 1] = r[k*W + W - 1];
    for (i = W - 2; i >= 0; i = i - 1) back[k*W + i] = back[k*W + i + 1] ^ r[k*W + i];
  end
  always @(posedge clk) for (k = 0; k < N; k = k + 1) if (d[k % 8]) count[k] <= back[k*W +: W] + k + 1;
  fold #(N*W) out (clk, r, q);
endmodule
