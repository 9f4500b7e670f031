//! One TLS for the whole program: rustls with ring, which needs nothing but a C compiler to build.

/// Choose it. Whoever makes an HTTPS client calls this first; once is enough, more does no harm.
pub fn choose() {
    // An error says that it was chosen before, which is what was wanted.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
