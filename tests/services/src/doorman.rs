//! A door that takes the proof of identity off each request, for a client whose kind of proof the server behind it does not
//! know. One request per connection.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;

use super::Fallible;

/// Longest head of a request.
const HEAD_MAX_BYTES: usize = 64 << 10;

/// Opens one in front of a server, for as long as this process lives.
pub(crate) fn open(server: SocketAddr) -> Fallible<SocketAddr> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            // A client that leaves is nobody's failure here.
            thread::spawn(move || pass(client, server).ok());
        }
    });
    Ok(address)
}

fn pass(mut client: TcpStream, server: SocketAddr) -> io::Result<()> {
    let (head, rest) = read_head(&mut client)?;
    let mut server = TcpStream::connect(server)?;
    for line in head.lines().filter(|line| !is(line, "authorization") && !is(line, "connection")) {
        write!(server, "{line}\r\n")?;
    }
    write!(server, "connection: close\r\n\r\n")?;
    server.write_all(&rest)?;
    let (mut from, mut to) = (client.try_clone()?, server.try_clone()?);
    thread::spawn(move || io::copy(&mut from, &mut to).and_then(|_| to.shutdown(Shutdown::Write)).ok());
    io::copy(&mut server, &mut client)?;
    client.shutdown(Shutdown::Both)
}

/// The head without its last, empty line, and what was read beyond it.
fn read_head(client: &mut TcpStream) -> io::Result<(String, Vec<u8>)> {
    let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let rest = bytes.split_off(end + 4);
            return Ok((String::from_utf8_lossy(&bytes).trim_end().to_owned(), rest));
        }
        let read = client.read(&mut piece)?;
        if read == 0 || bytes.len() > HEAD_MAX_BYTES {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bytes.extend(piece.iter().take(read));
    }
}

fn is(line: &str, name: &str) -> bool {
    line.split(':').next().is_some_and(|found| found.eq_ignore_ascii_case(name))
}
