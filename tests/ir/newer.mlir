func.func @new(%a: tensor<4x8xf32>, %b: tensor<8x16xf32>, %bt: tensor<16x8xf32>, %c: tensor<4x16xf32>, %i: tensor<4x8xi32>, %h: tensor<4x8xf16>, %hb: tensor<8x16xf16>) -> tensor<4x8xf32> {
  %0 = linalg.elementwise kind=#linalg.elementwise_kind<add> ins(%a, %a : tensor<4x8xf32>, tensor<4x8xf32>) outs(%a : tensor<4x8xf32>) -> tensor<4x8xf32>
  %00 = linalg.elementwise kind=#linalg.elementwise_kind<reciprocal> ins(%a : tensor<4x8xf32>) outs(%a : tensor<4x8xf32>) -> tensor<4x8xf32>
  %1 = linalg.elementwise kind=#linalg.elementwise_kind<exp> indexing_maps = [affine_map<(d0, d1) -> (d1, d0)>, affine_map<(d0, d1) -> (d0, d1)>] ins(%b : tensor<8x16xf32>) outs(%bt : tensor<16x8xf32>) -> tensor<16x8xf32>
  %2 = linalg.matmul indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1)>] ins(%a, %bt : tensor<4x8xf32>, tensor<16x8xf32>) outs(%c : tensor<4x16xf32>) -> tensor<4x16xf32>
  %21 = linalg.matmul ins(%h, %hb : tensor<4x8xf16>, tensor<8x16xf16>) outs(%c : tensor<4x16xf32>) -> tensor<4x16xf32>
  %z = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %zf = "tosa.const"() <{values = dense<0.0> : tensor<1xf32>}> : () -> tensor<1xf32>
  %3 = tosa.mul %a, %a, %z : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<1xi8>) -> tensor<4x8xf32>
  %4 = tosa.negate %a, %zf, %zf : (tensor<4x8xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<4x8xf32>
  %5 = tosa.clamp %a {min_val = 0.0 : f32, max_val = 0x7F800000 : f32} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %6 = tosa.clamp %i {min_val = -3 : i32, max_val = 3 : i32} : (tensor<4x8xi32>) -> tensor<4x8xi32>
  %m = "tosa.const"() <{values = dense<1.0> : tensor<1x4x8xf32>}> : () -> tensor<1x4x8xf32>
  %n = "tosa.const"() <{values = dense<1.0> : tensor<1x8x3xf32>}> : () -> tensor<1x8x3xf32>
  %8 = tosa.matmul %m, %n, %zf, %zf : (tensor<1x4x8xf32>, tensor<1x8x3xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<1x4x3xf32>
  %7 = tosa.intdiv %i, %i : (tensor<4x8xi32>, tensor<4x8xi32>) -> tensor<4x8xi32>
  return %0 : tensor<4x8xf32>
}
