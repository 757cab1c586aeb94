// Storage and fabric: queues, files of registers, matching memories, sorting and switching.

module fifo #(parameter W = 8, DEPTH = 16, BLOCK = 0) (input clk, input rst, input [7:0] d, input put, get, output [7:0] q);
  localparam A = $clog2(DEPTH);
  wire [W-1:0] x;
  reg [W-1:0] r;
  reg [A:0] first, last;
  wire empty = first == last, full = first[A-1:0] == last[A-1:0] && !empty;
  widen #(W) in (clk, d, x);
  generate if (BLOCK) begin : block
    (* ram_style = "block" *) reg [W-1:0] words [0:DEPTH-1];
    always @(posedge clk) begin
      if (put && !full) words[last[A-1:0]] <= x;
      r <= words[first[A-1:0]];
    end
  end else begin : registers
    (* ram_style = "logic" *) reg [W-1:0] words [0:DEPTH-1];
    always @(posedge clk) begin
      if (put && !full) words[last[A-1:0]] <= x;
      r <= words[first[A-1:0]];
    end
  end endgenerate
  always @(posedge clk)
    if (rst) {first, last} <= 0;
    else begin
      if (put && !full) last <= last + 1;
      if (get && !empty) first <= first + 1;
    end
  fold #(W) out (clk, r, q);
endmodule

module register_file #(parameter W = 8, N = 8, READS = 2) (input clk, input [7:0] d, input [4:0] at, output [7:0] q);
  localparam A = $clog2(N);
  wire [W-1:0] x;
  wire [READS*A-1:0] from;
  (* ram_style = "logic" *) reg [W-1:0] words [0:N-1];
  reg [READS*W-1:0] r;
  integer i;
  widen #(W) in (clk, d, x);
  widen #(READS*A) where (clk, {d[2:0], at}, from);
  always @(posedge clk) begin
    words[at[A-1:0]] <= x;
    for (i = 0; i < READS; i = i + 1) r[i*W +: W] <= words[from[i*A +: A]];
  end
  fold #(READS*W) out (clk, r, q);
endmodule

module matching_memory #(parameter N = 8, W = 8) (input clk, input write, input [7:0] d, output [7:0] q);
  reg [W-1:0] keys [0:N-1];
  wire [W-1:0] x;
  reg [N-1:0] hits;
  reg [7:0] first;
  integer i;
  widen #(W) in (clk, d, x);
  always @* begin
    first = 8'hff;
    for (i = N - 1; i >= 0; i = i - 1) begin
      hits[i] = keys[i] == x;
      if (hits[i]) first = i;
    end
  end
  always @(posedge clk) if (write) begin
    keys[0] <= x;
    for (i = 1; i < N; i = i + 1) keys[i] <= keys[i-1];
  end
  fold #(8) out (clk, first, q);
endmodule

module sorter #(parameter N = 4, W = 8, PIPED = 0) (input clk, input [7:0] d, output [7:0] q);
  wire [N*W-1:0] x;
  wire [N*W-1:0] layers [0:N];
  genvar g, i;
  widen #(N*W) in (clk, d, x);
  assign layers[0] = x;
  generate for (g = 0; g < N; g = g + 1) begin : layer
    wire [N*W-1:0] next;
    for (i = 0; i < N; i = i + 1) begin : lane
      wire [W-1:0] own = layers[g][i*W +: W];
      if ((i + g) % 2 == 0 && i + 1 < N) begin
        wire [W-1:0] right = layers[g][(i+1)*W +: W];
        assign next[i*W +: W] = own < right ? own : right;
      end else if ((i + g) % 2 == 1 && i > 0) begin
        wire [W-1:0] left = layers[g][(i-1)*W +: W];
        assign next[i*W +: W] = left < own ? own : left;
      end else assign next[i*W +: W] = own;
    end
    if (PIPED) begin
      reg [N*W-1:0] held;
      always @(posedge clk) held <= next;
      assign layers[g+1] = held;
    end else assign layers[g+1] = next;
  end endgenerate
  fold #(N*W) out (clk, layers[N], q);
endmodule

module crossbar #(parameter N = 4, W = 4) (input clk, input [7:0] d, output [7:0] q);
  localparam A = $clog2(N);
  wire [N*W-1:0] x;
  wire [N*A-1:0] from;
  reg [N*W-1:0] r;
  integer i;
  widen #(N*W) in (clk, d, x);
  widen #(N*A) where (clk, d ^ 8'h5a, from);
  always @* for (i = 0; i < N; i = i + 1) r[i*W +: W] = x[from[i*A +: A]*W +: W];
  fold #(N*W) out (clk, r, q);
endmodule

module shifter #(parameter W = 32, KIND = 0) (input clk, input [7:0] d, output [7:0] q);
  localparam A = $clog2(W);
  wire [W+A-1:0] x;
  wire [W-1:0] v = x[W-1:0];
  wire [A-1:0] by = x[W+A-1:W];
  widen #(W+A) in (clk, d, x);
  fold #(W) out (clk, KIND == 0 ? v << by : KIND == 1 ? $signed(v) >>> by : {v, v} >> by, q);
endmodule

module unit #(parameter W = 16, OPERATIONS = 8) (input clk, input [7:0] d, output [7:0] q);
  wire [2*W+2:0] x;
  wire [W-1:0] a = x[W-1:0], b = x[2*W-1:W];
  reg [W-1:0] r;
  widen #(2*W+3) in (clk, d, x);
  always @*
    case (x[2*W+2:2*W] % OPERATIONS)
      0: r = a + b;
      1: r = a - b;
      2: r = a & b;
      3: r = a | b;
      4: r = a ^ b;
      5: r = a < b;
      6: r = a << b[3:0];
      default: r = $signed(a) >>> b[3:0];
    endcase
  fold #(W) out (clk, r, q);
endmodule

module automaton #(parameter N = 64, RULE = 110, STEPS = 1) (input clk, input [7:0] d, output [7:0] q);
  reg [N-1:0] state, next, now;
  integer i, s;
  always @* begin
    now = state;
    for (s = 0; s < STEPS; s = s + 1) begin
      for (i = 0; i < N; i = i + 1)
        next[i] = (RULE >> {now[(i+1) % N], now[i], now[(i+N-1) % N]}) & 1;
      now = next;
    end
  end
  always @(posedge clk) state <= now ^ d;
  fold #(N) out (clk, state, q);
endmodule

module random_logic #(parameter IN = 32, LAYERS = 4, SEED = 1) (input clk, input [7:0] d, output [7:0] q);
  wire [IN-1:0] x;
  reg [IN-1:0] v, w;
  reg [31:0] s;
  reg [15:0] table16;
  integer i, l, p1, p2, p3, p4;
  widen #(IN) in (clk, d, x);
  always @* begin
    v = x;
    s = SEED * 2654435;
    for (l = 0; l < LAYERS; l = l + 1) begin
      for (i = 0; i < IN; i = i + 1) begin
        s = s * 1664525 + 1013904223; p1 = s[31:12] % IN;
        s = s * 1664525 + 1013904223; p2 = s[31:12] % IN;
        s = s * 1664525 + 1013904223; p3 = s[31:12] % IN;
        s = s * 1664525 + 1013904223; p4 = s[31:12] % IN;
        s = s * 1664525 + 1013904223; table16 = s[31:16];
        w[i] = table16[{v[p1], v[p2], v[p3], v[p4]}];
      end
      v = w;
    end
  end
  fold #(IN) out (clk, v, q);
endmodule
