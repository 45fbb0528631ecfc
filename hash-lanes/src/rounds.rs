//! The constants of MD5 (RFC 1321, section 3.4), and its 64 steps as a macro over whatever has an
//! addition, a rotation and the four functions.

/// Bytes of a block (section 3.4).
pub(crate) const BLOCK: usize = 64;

/// The words A, B, C, D.
pub(crate) type State = [u32; 4];

/// The words a stream begins with (section 3.3).
pub(crate) const INITIAL: State = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];

/// `floor(2^32 * |sin(i + 1)|)`, the table T of section 3.4.
pub(crate) const T: [u32; 64] = [
    0xd76a_a478,
    0xe8c7_b756,
    0x2420_70db,
    0xc1bd_ceee,
    0xf57c_0faf,
    0x4787_c62a,
    0xa830_4613,
    0xfd46_9501,
    0x6980_98d8,
    0x8b44_f7af,
    0xffff_5bb1,
    0x895c_d7be,
    0x6b90_1122,
    0xfd98_7193,
    0xa679_438e,
    0x49b4_0821,
    0xf61e_2562,
    0xc040_b340,
    0x265e_5a51,
    0xe9b6_c7aa,
    0xd62f_105d,
    0x0244_1453,
    0xd8a1_e681,
    0xe7d3_fbc8,
    0x21e1_cde6,
    0xc337_07d6,
    0xf4d5_0d87,
    0x455a_14ed,
    0xa9e3_e905,
    0xfcef_a3f8,
    0x676f_02d9,
    0x8d2a_4c8a,
    0xfffa_3942,
    0x8771_f681,
    0x6d9d_6122,
    0xfde5_380c,
    0xa4be_ea44,
    0x4bde_cfa9,
    0xf6bb_4b60,
    0xbebf_bc70,
    0x289b_7ec6,
    0xeaa1_27fa,
    0xd4ef_3085,
    0x0488_1d05,
    0xd9d4_d039,
    0xe6db_99e5,
    0x1fa2_7cf8,
    0xc4ac_5665,
    0xf429_2244,
    0x432a_ff97,
    0xab94_23a7,
    0xfc93_a039,
    0x655b_59c3,
    0x8f0c_cc92,
    0xffef_f47d,
    0x8584_5dd1,
    0x6fa8_7e4f,
    0xfe2c_e6e0,
    0xa301_4314,
    0x4e08_11a1,
    0xf753_7e82,
    0xbd3a_f235,
    0x2ad7_d2bb,
    0xeb86_d391,
];

/// The 64 steps. `$step!(function, a, b, c, d, word, rotation, t)` sets `a`.
macro_rules! steps {
    ($step:ident, $a:ident, $b:ident, $c:ident, $d:ident) => {
        steps!(@round $step, f, $a, $b, $c, $d, 7, 12, 17, 22, 0,
            0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        steps!(@round $step, g, $a, $b, $c, $d, 5, 9, 14, 20, 16,
            1, 6, 11, 0, 5, 10, 15, 4, 9, 14, 3, 8, 13, 2, 7, 12);
        steps!(@round $step, h, $a, $b, $c, $d, 4, 11, 16, 23, 32,
            5, 8, 11, 14, 1, 4, 7, 10, 13, 0, 3, 6, 9, 12, 15, 2);
        steps!(@round $step, i, $a, $b, $c, $d, 6, 10, 15, 21, 48,
            0, 7, 14, 5, 12, 3, 10, 1, 8, 15, 6, 13, 4, 11, 2, 9);
    };
    (@round $step:ident, $function:ident, $a:ident, $b:ident, $c:ident, $d:ident,
        $r0:literal, $r1:literal, $r2:literal, $r3:literal, $t:literal,
        $w0:literal, $w1:literal, $w2:literal, $w3:literal, $w4:literal, $w5:literal, $w6:literal, $w7:literal,
        $w8:literal, $w9:literal, $w10:literal, $w11:literal, $w12:literal, $w13:literal, $w14:literal, $w15:literal
    ) => {
        $step!($function, $a, $b, $c, $d, $w0, $r0, $t);
        $step!($function, $d, $a, $b, $c, $w1, $r1, $t + 1);
        $step!($function, $c, $d, $a, $b, $w2, $r2, $t + 2);
        $step!($function, $b, $c, $d, $a, $w3, $r3, $t + 3);
        $step!($function, $a, $b, $c, $d, $w4, $r0, $t + 4);
        $step!($function, $d, $a, $b, $c, $w5, $r1, $t + 5);
        $step!($function, $c, $d, $a, $b, $w6, $r2, $t + 6);
        $step!($function, $b, $c, $d, $a, $w7, $r3, $t + 7);
        $step!($function, $a, $b, $c, $d, $w8, $r0, $t + 8);
        $step!($function, $d, $a, $b, $c, $w9, $r1, $t + 9);
        $step!($function, $c, $d, $a, $b, $w10, $r2, $t + 10);
        $step!($function, $b, $c, $d, $a, $w11, $r3, $t + 11);
        $step!($function, $a, $b, $c, $d, $w12, $r0, $t + 12);
        $step!($function, $d, $a, $b, $c, $w13, $r1, $t + 13);
        $step!($function, $c, $d, $a, $b, $w14, $r2, $t + 14);
        $step!($function, $b, $c, $d, $a, $w15, $r3, $t + 15);
    };
}
pub(crate) use steps;
