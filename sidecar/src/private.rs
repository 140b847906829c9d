//! Files, sockets and folders that only this user may touch, whatever the umask and the folder they stand in.
//!
//! INVARIANT: at no moment has anything made here a wider mode: it is made closed, not closed after it was made.

use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// What others may do with it.
const OTHERS: u32 = 0o077;
/// Others may pass through a folder to what is theirs by name, and list nothing.
const PASS: u32 = 0o011;
/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;

/// Puts a file with these bytes in the place of whatever stands there; a reader sees the old bytes or the new ones.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let aside = write_aside(path, bytes)?;
    std::fs::rename(&aside, path)
}

/// Makes a file with these bytes; an error of kind `AlreadyExists` when something stands there.
pub fn create(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let aside = write_aside(path, bytes)?;
    // Linked, not renamed: of two processes the first one wins, and its bytes are all there.
    let linked = std::fs::hard_link(&aside, path);
    std::fs::remove_file(&aside)?;
    linked
}

/// Takes from others what they may do with a file; one that is not there is fine.
pub fn close(path: &Path) -> io::Result<()> {
    let metadata = match std::fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        metadata => metadata?,
    };
    let mode = metadata.permissions().mode();
    if mode & OTHERS == 0 {
        return Ok(());
    }
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode & 0o777 & !OTHERS))
}

/// Makes a folder, and those above it, if they are missing. `passable`: others may pass through it.
pub fn folder(path: &Path, passable: bool) -> io::Result<()> {
    if let Some(above) = path.parent() {
        std::fs::create_dir_all(above)?;
    }
    match std::fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
        made => made?,
    }
    let mode = std::fs::metadata(path)?.permissions().mode() & 0o7777;
    if passable && mode & PASS != PASS {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode | PASS))?;
    }
    Ok(())
}

/// A Unix socket that listens and does not block.
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // Linux gives the path the mode that the socket has when it is bound; a umask would be every thread's.
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

fn write_aside(path: &Path, bytes: &[u8]) -> io::Result<PathBuf> {
    let mut name = path.file_name().ok_or(io::ErrorKind::InvalidFilename)?.to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let aside = path.with_file_name(name);
    // Left by a process of our id that was killed; its mode would stay with it.
    match std::fs::remove_file(&aside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&aside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    Ok(aside)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    fn set_mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }

    #[test]
    fn files_and_sockets_are_private_and_nothing_is_left_beside_them() {
        let top = tempfile::tempdir().unwrap();
        let (file, socket) = (top.path().join("file"), top.path().join("socket"));
        create(&file, b"one").unwrap();
        assert_eq!(create(&file, b"two").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!((std::fs::read(&file).unwrap(), mode(&file)), (b"one".to_vec(), 0o600));
        set_mode(&file, 0o644);
        close(&file).unwrap();
        assert_eq!(mode(&file), 0o600);
        set_mode(&file, 0o644);
        replace(&file, b"two").unwrap();
        assert_eq!((std::fs::read(&file).unwrap(), mode(&file)), (b"two".to_vec(), 0o600));
        drop(listen(&socket).unwrap());
        assert_eq!(mode(&socket), 0o600);
        assert_eq!(std::fs::read_dir(top.path()).unwrap().count(), 2);
        close(&top.path().join("absent")).unwrap();
    }

    #[test]
    fn a_folder_is_opened_only_when_it_must_be() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("above/data");
        folder(&path, false).unwrap();
        assert_eq!(mode(&path), 0o700);
        folder(&path, true).unwrap();
        assert_eq!(mode(&path), 0o711);
        folder(&path, false).unwrap();
        assert_eq!(mode(&path), 0o711, "what an operator opened stays open");
        std::fs::write(top.path().join("file"), "").unwrap();
        assert!(folder(&top.path().join("file"), false).is_err());
    }
}
