func.func @arith(%a: f32, %b: f32, %i: index, %j: i32, %t: tensor<4xf32>, %u: tensor<4xi32>) -> f32 {
  %c = arith.constant 1.5 : f32
  %ci = arith.constant 7 : index
  %cd = arith.constant dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>
  %cs = arith.constant dense<0.0> : tensor<4x4xf32>
  %b0 = arith.constant true
  %cn = arith.constant -1 : i32
  %0 = arith.addf %a, %b : f32
  %1 = arith.mulf %t, %cd : tensor<4xf32>
  %2 = arith.cmpf olt, %a, %b : f32
  %3 = arith.cmpi slt, %i, %ci : index
  %4 = arith.select %3, %a, %b : f32
  %5 = arith.index_cast %i : index to i64
  %6 = arith.sitofp %u : tensor<4xi32> to tensor<4xf32>
  %7 = arith.negf %t : tensor<4xf32>
  %8 = arith.maximumf %t, %1 : tensor<4xf32>
  %9 = arith.divf %t, %1 fastmath<fast> : tensor<4xf32>
  %10 = arith.remsi %i, %ci : index
  %11 = arith.extf %t : tensor<4xf32> to tensor<4xf64>
  %12 = arith.truncf %11 : tensor<4xf64> to tensor<4xf16>
  %13 = arith.remf %a, %b : f32
  %14 = arith.xori %j, %cn : i32
  %15 = arith.addi %j, %cn overflow<nsw> : i32
  %16 = arith.index_castui %i : index to i32
  return %4 : f32
}
// -----
func.func @math(%t: tensor<4xf32>, %u: tensor<4xi32>) -> tensor<4xf32> {
  %0 = math.exp %t : tensor<4xf32>
  %1 = math.tanh %0 : tensor<4xf32>
  %2 = math.powf %0, %1 : tensor<4xf32>
  %3 = math.fma %0, %1, %2 : tensor<4xf32>
  %4 = math.rsqrt %3 fastmath<fast> : tensor<4xf32>
  %5 = math.absi %u : tensor<4xi32>
  %6 = math.erf %4 : tensor<4xf32>
  %7 = math.sqrt %6 : tensor<4xf32>
  %8 = math.log1p %7 : tensor<4xf32>
  return %8 : tensor<4xf32>
}
// -----
func.func @tensor(%t: tensor<4x8xf32>, %d: tensor<?x8xf32>, %i: index, %f: f32) -> tensor<2x4xf32> {
  %e = tensor.empty() : tensor<4x8xf32>
  %e2 = tensor.empty(%i) : tensor<?x8xf32>
  %c0 = arith.constant 0 : index
  %n = tensor.dim %d, %c0 : tensor<?x8xf32>
  %s = tensor.extract_slice %t[0, %i] [2, 4] [1, 1] : tensor<4x8xf32> to tensor<2x4xf32>
  %s2 = tensor.extract_slice %d[%i, 0] [%n, 4] [1, 2] : tensor<?x8xf32> to tensor<?x4xf32>
  %k = tensor.insert_slice %s into %t[0, %i] [2, 4] [1, 1] : tensor<2x4xf32> into tensor<4x8xf32>
  %x = tensor.extract %t[%i, %c0] : tensor<4x8xf32>
  %y = tensor.insert %f into %t[%i, %c0] : tensor<4x8xf32>
  %p = tensor.splat %f : tensor<4x8xf32>
  %q = tensor.cast %t : tensor<4x8xf32> to tensor<?x8xf32>
  %v = tensor.collapse_shape %t [[0, 1]] : tensor<4x8xf32> into tensor<32xf32>
  %w = tensor.expand_shape %v [[0, 1]] output_shape [4, 8] : tensor<32xf32> into tensor<4x8xf32>
  %fe = tensor.from_elements %f, %f : tensor<2xf32>
  %cc = tensor.concat dim(1) %t, %t : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x16xf32>
  %pp = tensor.pad %t low[1, 0] high[1, 0] {
  ^bb0(%a: index, %b: index):
    tensor.yield %f : f32
  } : tensor<4x8xf32> to tensor<6x8xf32>
  %shp = tensor.from_elements %i, %i : tensor<2xindex>
  %r = tensor.reshape %t(%shp) : (tensor<4x8xf32>, tensor<2xindex>) -> tensor<?x?xf32>
  return %s : tensor<2x4xf32>
}
// -----
func.func @scf(%c: i1, %t: tensor<4xf32>, %u: tensor<4xf32>, %n: index) -> tensor<4xf32> {
  %0 = scf.if %c -> (tensor<4xf32>) {
    scf.yield %t : tensor<4xf32>
  } else {
    scf.yield %u : tensor<4xf32>
  }
  scf.if %c {
    %x = arith.constant 1 : index
  }
  %a, %b = scf.if %c -> (tensor<4xf32>, index) {
    scf.yield %t, %n : tensor<4xf32>, index
  } else {
    scf.yield %u, %n : tensor<4xf32>, index
  }
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %r = scf.for %i = %c0 to %n step %c1 iter_args(%acc = %t) -> (tensor<4xf32>) {
    %s = arith.addf %acc, %u : tensor<4xf32>
    scf.yield %s : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}
// -----
func.func @index(%i: index, %j: index, %k: i32) -> index {
  %c = index.constant 4
  %0 = index.add %i, %j
  %1 = index.sub %0, %c
  %2 = index.mul %0, %1
  %3 = index.divs %2, %c
  %4 = index.divu %2, %c
  %5 = index.ceildivs %2, %c
  %6 = index.ceildivu %2, %c
  %7 = index.floordivs %2, %c
  %8 = index.rems %2, %c
  %9 = index.remu %2, %c
  %10 = index.maxs %2, %c
  %11 = index.minu %2, %c
  %12 = index.shl %2, %c
  %13 = index.and %2, %c
  %14 = index.cmp slt(%2, %c)
  %15 = index.casts %k : i32 to index
  %16 = index.castu %i : index to i32
  %17 = index.sizeof
  %18 = index.bool.constant true
  return %7 : index
}
// -----
func.func @linalg(%a: tensor<4x8xf32>, %b: tensor<8x16xf32>, %c: tensor<4x16xf32>, %ba: tensor<2x4x8xf32>, %bb: tensor<2x8x16xf32>, %bc: tensor<2x4x16xf32>, %f: f32, %v: tensor<4xf32>) -> tensor<4x16xf32> {
  %0 = linalg.fill ins(%f : f32) outs(%c : tensor<4x16xf32>) -> tensor<4x16xf32>
  %1 = linalg.matmul ins(%a, %b : tensor<4x8xf32>, tensor<8x16xf32>) outs(%0 : tensor<4x16xf32>) -> tensor<4x16xf32>
  %2 = linalg.batch_matmul ins(%ba, %bb : tensor<2x4x8xf32>, tensor<2x8x16xf32>) outs(%bc : tensor<2x4x16xf32>) -> tensor<2x4x16xf32>
  %e = tensor.empty() : tensor<16x4xf32>
  %3 = linalg.transpose ins(%1 : tensor<4x16xf32>) outs(%e : tensor<16x4xf32>) permutation = [1, 0]
  %4 = linalg.broadcast ins(%v : tensor<4xf32>) outs(%c : tensor<4x16xf32>) dimensions = [1]
  %5 = linalg.reduce ins(%1 : tensor<4x16xf32>) outs(%v : tensor<4xf32>) dimensions = [1] (%in: f32, %init: f32) {
    %s = arith.addf %in, %init : f32
    linalg.yield %s : f32
  }
  %6 = linalg.reduce { arith.addf } ins(%1 : tensor<4x16xf32>) outs(%v : tensor<4xf32>) dimensions = [1]
  %7 = linalg.add ins(%1, %4 : tensor<4x16xf32>, tensor<4x16xf32>) outs(%c : tensor<4x16xf32>) -> tensor<4x16xf32>
  %8 = linalg.exp ins(%1 : tensor<4x16xf32>) outs(%c : tensor<4x16xf32>) -> tensor<4x16xf32>
  %a8 = linalg.tanh ins(%1 : tensor<4x16xf32>) outs(%c : tensor<4x16xf32>) -> tensor<4x16xf32>
  %b8 = linalg.div ins(%1, %4 : tensor<4x16xf32>, tensor<4x16xf32>) outs(%c : tensor<4x16xf32>) -> tensor<4x16xf32>
  %c8 = linalg.negf ins(%1 : tensor<4x16xf32>) outs(%c : tensor<4x16xf32>) -> tensor<4x16xf32>
  %9 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%1, %v : tensor<4x16xf32>, tensor<4xf32>) outs(%c : tensor<4x16xf32>) {
  ^bb0(%x: f32, %y: f32, %z: f32):
    %i = linalg.index 0 : index
    %s = arith.mulf %x, %y : f32
    linalg.yield %s : f32
  } -> tensor<4x16xf32>
  %10:2 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d0)>], iterator_types = ["parallel", "reduction"]} ins(%1 : tensor<4x16xf32>) outs(%v, %v : tensor<4xf32>, tensor<4xf32>) {
  ^bb0(%x: f32, %y: f32, %z: f32):
    %s = arith.addf %x, %y : f32
    %m = arith.maximumf %x, %z : f32
    linalg.yield %s, %m : f32, f32
  } -> (tensor<4xf32>, tensor<4xf32>)
  %k = tensor.empty() : tensor<4x16xi1>
  %12 = linalg.select ins(%k, %1, %1 : tensor<4x16xi1>, tensor<4x16xf32>, tensor<4x16xf32>) outs(%c : tensor<4x16xf32>) -> tensor<4x16xf32>
  return %9 : tensor<4x16xf32>
}
// -----
func.func @tosa(%a: tensor<4x8xf32>, %b: tensor<4x8xf32>, %c: tensor<4x8xi1>, %i: tensor<4x8xi32>) -> tensor<4x8xf32> {
  %0 = tosa.add %a, %b : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %1 = tosa.sub %a, %b : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %2 = tosa.mul %a, %b {shift = 0 : i8} : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %3 = tosa.abs %a : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %4 = tosa.negate %a : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %5 = tosa.exp %a : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %6 = tosa.log %a : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %7 = tosa.rsqrt %a : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %8 = tosa.sigmoid %a : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %9 = tosa.tanh %a : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %10 = tosa.maximum %a, %b : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %11 = tosa.minimum %a, %b : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %12 = tosa.pow %a, %b : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %13 = tosa.floor %a : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %14 = tosa.ceil %a : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %15 = tosa.erf %a : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %16 = tosa.reciprocal %a : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %17 = tosa.greater %a, %b : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xi1>
  %18 = tosa.select %c, %a, %b : (tensor<4x8xi1>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %19 = tosa.logical_not %c : (tensor<4x8xi1>) -> tensor<4x8xi1>
  %20 = tosa.bitwise_and %i, %i : (tensor<4x8xi32>, tensor<4x8xi32>) -> tensor<4x8xi32>
  %21 = tosa.cast %a : (tensor<4x8xf32>) -> tensor<4x8xf16>
  %22 = tosa.clamp %a {min_fp = 0.0 : f32, max_fp = 6.0 : f32, min_int = 0 : i64, max_int = 6 : i64} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %23 = "tosa.const"() {value = dense<1.0> : tensor<4x8xf32>} : () -> tensor<4x8xf32>
  %24 = tosa.identity %a : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %25 = tosa.int_div %i, %i : (tensor<4x8xi32>, tensor<4x8xi32>) -> tensor<4x8xi32>
  %26 = tosa.equal %a, %b : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xi1>
  %27 = tosa.reduce_sum %a {axis = 1 : i32} : (tensor<4x8xf32>) -> tensor<4x1xf32>
  %m = "tosa.const"() {value = dense<1.0> : tensor<1x4x8xf32>} : () -> tensor<1x4x8xf32>
  %n = "tosa.const"() {value = dense<1.0> : tensor<1x8x3xf32>} : () -> tensor<1x8x3xf32>
  %29 = tosa.matmul %m, %n : (tensor<1x4x8xf32>, tensor<1x8x3xf32>) -> tensor<1x4x3xf32>
  %28 = tosa.sin %a : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %3 : tensor<4x8xf32>
}
