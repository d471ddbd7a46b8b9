/* exits.c - forks and exits of the command's tree as the kernel's process connector tells them, so
 * that processes too short for any snapshot are at least counted. Needs CAP_NET_ADMIN; absence is
 * recorded. */
#include "fak/axes.h"

#include <errno.h>
#include <linux/cn_proc.h>
#include <linux/connector.h>
#include <linux/netlink.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static bool listen_to(int fd)
{
    enum proc_cn_mcast_op op = PROC_CN_MCAST_LISTEN;
    struct nlmsghdr h = {.nlmsg_type = NLMSG_DONE};
    struct cn_msg m = {.id = {.idx = CN_IDX_PROC, .val = CN_VAL_PROC}, .len = sizeof(op)};
    char ask[NLMSG_LENGTH(sizeof(m) + sizeof(op))];
    h.nlmsg_len = sizeof(ask);
    memset(ask, 0, sizeof(ask));
    memcpy(ask, &h, sizeof(h));
    memcpy(ask + NLMSG_HDRLEN, &m, sizeof(m));
    memcpy(ask + NLMSG_HDRLEN + sizeof(m), &op, sizeof(op));
    return send(fd, ask, sizeof(ask), 0) == (ssize_t)sizeof(ask);
}

void fak_exits_open(fak_exits *x)
{
    struct sockaddr_nl a = {.nl_family = AF_NETLINK, .nl_groups = CN_IDX_PROC};
    memset(x, 0, sizeof(*x));
    x->reason = "no process connector";
    x->fd = socket(PF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_CONNECTOR);
    if (x->fd < 0) return;
    if (bind(x->fd, (struct sockaddr *)&a, sizeof(a)) != 0 || !listen_to(x->fd)) {
        x->reason = "the process connector needs CAP_NET_ADMIN";
        close(x->fd);
        x->fd = -1;
    }
}

static size_t place(const fak_exits *x, int32_t pid)
{
    size_t i = 0;
    while (i < x->n_pid && x->pid[i] != pid)
        i++;
    return i;
}

void fak_exits_set_root(fak_exits *x, int32_t pid)
{
    if (place(x, pid) < x->n_pid) return;
    if (x->n_pid == x->cap_pid) {
        size_t cap = x->cap_pid ? x->cap_pid * 2 : 64;
        int32_t *v = realloc(x->pid, cap * sizeof(*v));
        if (!v) {
            x->lost++;
            return;
        }
        x->pid = v;
        x->cap_pid = cap;
    }
    x->pid[x->n_pid++] = pid;
}

static void event(fak_exits *x, const struct proc_event *e)
{
    if (e->what == PROC_EVENT_FORK) {
        /* a new process has equal pid and tgid; the rest are threads */
        if (e->event_data.fork.child_pid == e->event_data.fork.child_tgid &&
            place(x, e->event_data.fork.parent_tgid) < x->n_pid)
            fak_exits_set_root(x, e->event_data.fork.child_tgid);
    } else if (e->what == PROC_EVENT_EXIT &&
               e->event_data.exit.process_pid == e->event_data.exit.process_tgid) {
        size_t i = place(x, e->event_data.exit.process_tgid);
        if (i == x->n_pid) return;
        x->pid[i] = x->pid[--x->n_pid];
        x->count++;
    }
}

void fak_exits_drain(fak_exits *x)
{
    union {
        struct nlmsghdr h; /* alignment */
        char bytes[8192];
    } buf;
    while (x->fd >= 0) {
        ssize_t n = recv(x->fd, buf.bytes, sizeof(buf), 0);
        if (n < 0 && errno == ENOBUFS) {
            x->lost++;
            continue;
        }
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return;
        size_t left = (size_t)n;
        for (struct nlmsghdr *h = &buf.h; NLMSG_OK(h, left); h = NLMSG_NEXT(h, left)) {
            struct cn_msg m;
            struct proc_event e;
            memset(&e, 0, sizeof(e));
            if (h->nlmsg_len < NLMSG_LENGTH(sizeof(m))) continue;
            memcpy(&m, NLMSG_DATA(h), sizeof(m));
            if (m.id.idx != CN_IDX_PROC || h->nlmsg_len < NLMSG_LENGTH(sizeof(m) + m.len)) continue;
            memcpy(&e, (char *)NLMSG_DATA(h) + sizeof(m), GEM_MIN(sizeof(e), (size_t)m.len));
            event(x, &e);
        }
    }
}

void fak_exits_close(fak_exits *x)
{
    if (x->fd >= 0) close(x->fd);
    free(x->pid);
    memset(x, 0, sizeof(*x));
    x->fd = -1;
}
