// Small processors: an accumulator, a stack, and a load-store machine, whose programs come in as words.

module accumulator_processor #(parameter W = 8, A = 5) (input clk, input rst, input [7:0] d, output [7:0] q);
  reg [W-1:0] sum, words [0:(1<<A)-1];
  reg [W+3:0] code [0:(1<<A)-1];
  reg [A-1:0] at;
  reg [W+3:0] order;
  wire [W-1:0] operand = words[order[A-1:0]];
  wire [3:0] kind = order[W+3:W];
  always @(posedge clk)
    if (rst) begin
      at <= 0;
      sum <= 0;
      code[d[A-1:0]] <= {order, d};
      order <= {order, d};
    end else begin
      order <= code[at];
      at <= kind == 7 && sum == 0 ? order[A-1:0] : kind == 8 ? order[A-1:0] : at + 1;
      case (kind)
        0: sum <= operand;
        1: sum <= sum + operand;
        2: sum <= sum - operand;
        3: sum <= sum & operand;
        4: sum <= sum ^ operand;
        5: words[order[A-1:0]] <= sum;
        6: sum <= order[W-1:0];
        9: sum <= sum >> 1;
        10: sum <= d;
        default: sum <= sum;
      endcase
    end
  fold #(W) out (clk, sum, q);
endmodule

module stack_processor #(parameter W = 16, DEPTH = 8) (input clk, input rst, input [7:0] d, output [7:0] q);
  reg [W-1:0] stack [0:DEPTH-1];
  reg [7:0] order;
  wire [W-1:0] top = stack[0], under = stack[1];
  reg [W-1:0] next;
  reg [1:0] move;  // 1 pops, 2 pushes
  integer i;
  always @* begin
    move = 0;
    next = top;
    case (order[3:0])
      0: begin next = top + under; move = 1; end
      1: begin next = under - top; move = 1; end
      2: begin next = top & under; move = 1; end
      3: begin next = top | under; move = 1; end
      4: begin next = top ^ under; move = 1; end
      5: begin next = under << top[3:0]; move = 1; end
      6: begin next = order[7:4]; move = 2; end
      7: begin next = top; move = 2; end
      8: begin next = under; move = 2; end
      9: next = ~top;
      10: next = top + 1;
      11: next = top == under;
      12: next = top < under;
      default: next = {top, order[7:4]};
    endcase
  end
  always @(posedge clk) begin
    order <= d;
    stack[0] <= rst ? 0 : next;
    for (i = 1; i < DEPTH; i = i + 1)
      if (move == 1 && i + 1 < DEPTH) stack[i] <= stack[i+1];
      else if (move == 2) stack[i] <= stack[i-1];
  end
  fold #(W) out (clk, top, q);
endmodule

module load_store_processor #(parameter W = 16, N = 8, MULTIPLY = 0) (input clk, input rst, input [7:0] d, output [7:0] q);
  localparam A = $clog2(N);
  (* ram_style = "logic" *) reg [W-1:0] registers [0:N-1];
  reg [15:0] order, second;
  reg [W-1:0] a, b, r;
  reg [A-1:0] to;
  reg [7:0] at;
  wire [W-1:0] value = second[3] ? {d, second[7:0]} : b;
  always @(posedge clk) begin
    order <= rst ? 0 : {order, d};
    second <= order;
    a <= to == order[A+3:4] ? r : registers[order[A+3:4]];
    b <= to == order[A+7:8] ? r : registers[order[A+7:8]];
    to <= second[A+11:12];
    at <= rst ? 0 : second[2:0] == 7 && a == b ? at + second[11:4] : at + 2;
    case (second[2:0])
      0: r <= a + value;
      1: r <= a - value;
      2: r <= a & value;
      3: r <= a ^ value;
      4: r <= a << value[3:0];
      5: r <= a >> value[3:0];
      6: r <= MULTIPLY ? a * value : a | value;
      default: r <= at;
    endcase
    registers[to] <= r;
  end
  fold #(W+8) out (clk, {at, r}, q);
endmodule
