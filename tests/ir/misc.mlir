module @m attributes {a.b = "x\22y\n", a.u, a.n = -3 : i64, a.f = 1.5 : f32, a.l = [1, "s", @f], a.d = {k = true}} {
  mesh.mesh @n(shape = 2x2)
  func.func private @ext(tensor<4xf32>) -> tensor<4xf32>
  func.func @f(%a: tensor<4xf32> {my.attr = 1 : i32}, %c: i1) -> (tensor<4xf32> {r.a}, index) attributes {my.emit} {
    cf.cond_br %c, ^bb1(%a : tensor<4xf32>), ^bb2
  ^bb1(%b: tensor<4xf32>):
    %0 = func.call @ext(%b) : (tensor<4xf32>) -> tensor<4xf32>
    %i = mesh.process_linear_index on @n {my.note = #mesh.partial<max>} : index
    return %0, %i : tensor<4xf32>, index
  ^bb2:
    %k = arith.constant 0 : index
    %m:2 = mesh.process_multi_index on @n : index, index
    cf.br ^bb3(%m#1 : index)
  ^bb3(%z: index):
    return %a, %z : tensor<4xf32>, index
  }
  module @inner {
    mesh.mesh @n(shape = 3)
    func.func @g() { 
      %x = arith.constant dense<[true, false, true]> : tensor<3xi1>
      %y = arith.constant dense<[1, -2]> : tensor<2xindex>
      %w = arith.constant dense<[1.0, 0xFF80]> : tensor<2xbf16>
      %n = arith.constant dense<0x7FC00000> : tensor<3xf32>
      %s = arith.constant 0x7F800000 : f32
      %e = arith.constant dense<> : tensor<0x4xf32>
      return }
  }
}
