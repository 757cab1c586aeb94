// Ports of few bits around wide designs: words come in through a shift register, and go out folded.

module widen #(parameter N = 32) (input clk, input [7:0] d, output reg [N-1:0] x);
  always @(posedge clk) x <= {x, d};
endmodule

module fold #(parameter N = 32) (input clk, input [N-1:0] x, output reg [7:0] q);
  reg [N-1:0] held;
  integer i;
  reg [7:0] sum;
  always @* begin
    sum = 0;
    for (i = 0; i < N; i = i + 1) sum[i % 8] = sum[i % 8] ^ held[i];
  end
  always @(posedge clk) begin
    held <= x;
    q <= sum;
  end
endmodule
