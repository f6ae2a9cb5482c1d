/* A disk that refuses. `ordo bench faults` preloads this into the nodes: while the file "full" is in $ORDO_FAULTS_DISK, every
 * write to a regular file fails as on a full disk; while "sync" is there, every sync fails. Output and errors go on. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static int refuses(int fd, const char *what) {
    struct stat status;
    char path[4096];
    const char *directory = getenv("ORDO_FAULTS_DISK");
    if (directory == NULL || fd <= 2 || fstat(fd, &status) != 0) return 0;
    if (!S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode)) return 0;
    snprintf(path, sizeof path, "%s/%s", directory, what);
    return access(path, F_OK) == 0;
}

#define NEXT(name) ((typeof(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int fd, const void *bytes, size_t count) {
    if (refuses(fd, "full")) return errno = ENOSPC, -1;
    return NEXT(write)(fd, bytes, count);
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t offset) {
    if (refuses(fd, "full")) return errno = ENOSPC, -1;
    return NEXT(pwrite64)(fd, bytes, count, offset);
}

int fdatasync(int fd) {
    if (refuses(fd, "sync")) return errno = EIO, -1;
    return NEXT(fdatasync)(fd);
}

int fsync(int fd) {
    if (refuses(fd, "sync")) return errno = EIO, -1;
    return NEXT(fsync)(fd);
}
