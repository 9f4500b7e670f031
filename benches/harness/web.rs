//! A server that answers from memory and keeps its connections, so that what is measured is the one who asks.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use super::Outcome;

/// Serve what `page` says for a path until the process ends; the address comes back.
pub fn serve(page: impl Fn(&str) -> Option<Arc<str>> + Send + Sync + 'static) -> Outcome<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = format!("http://{}", listener.local_addr()?);
    let page = Arc::new(page);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let page = page.clone();
            std::thread::spawn(move || drop(answer(stream, &*page)));
        }
    });
    Ok(address)
}

fn answer(mut stream: TcpStream, page: &dyn Fn(&str) -> Option<Arc<str>>) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut input = BufReader::new(stream.try_clone()?);
    loop {
        let mut first = String::new();
        if input.read_line(&mut first)? == 0 {
            return Ok(());
        }
        let mut rest = String::new();
        while input.read_line(&mut rest)? > 2 {
            rest.clear();
        }
        let body = page(first.split(' ').nth(1).unwrap_or_default());
        let status = if body.is_some() { "200 OK" } else { "404 Not Found" };
        let body = body.unwrap_or_default();
        // All in one go: every part would be a packet of its own, and wake the one who asks.
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        stream.write_all(answer.as_bytes())?;
    }
}
