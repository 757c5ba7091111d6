# The machine itself: Linux, disk space, and programs that only the system's package manager can bring.
# Sourced by setup.sh.

wanted_disk_mib=4096
[[ ${SETUP_FOR:-} == tests ]] && wanted_disk_mib=4900

check_machine() {
  [[ $(uname -s) == Linux ]] || give_up "this is $(uname -s)" "PrfaaS runs on Linux."
  local free_mib
  free_mib=$(df -Pm "$root" | awk 'NR == 2 { print $4 }')
  if [[ ! -f $stamps/packages ]] && ((free_mib < wanted_disk_mib)); then
    give_up "only $free_mib MiB of disk are free here" "The packages need $wanted_disk_mib MiB: make room, or set VENV to another disk."
  fi
  done_step "Linux $(uname -m)"
}

# Debian packages whose program is missing. etcdctl is for operators, iperf3 and openssl are for benchmarks. etcd comes as a wheel too,
# so it is only wanted, not needed.
# SETUP_FOR=tests, as `make test` sets it, brings more: systemd-nspawn, sshd and nft for full hosts, chromium for the gateway's page
# (113 MB to fetch, 414 MB on disk), promtool for alert rules, which Debian has in prometheus only (23 MB, 332 MB).
missing_debian_packages() {
  local pair wanted=(etcd:etcd-server etcdctl:etcd-client ip:iproute2 iptables:iptables iperf3:iperf3 openssl:openssl ssh:openssh-client)
  if [[ ${SETUP_FOR:-} == tests ]]; then
    wanted+=(systemd-nspawn:systemd-container sshd:openssh-server nft:nftables chromium:chromium promtool:prometheus)
  fi
  for pair in "${wanted[@]}"; do
    have "${pair%%:*}" || printf '%s\n' "${pair##*:}"
  done
}

have() {
  PATH=$PATH:/usr/sbin:/sbin command -v "$1" >/dev/null
}

install_programs() {
  local missing
  mapfile -t missing < <(missing_debian_packages)
  if ((${#missing[@]} == 0)); then
    done_step "all there"
  elif can_apt; then
    apt_install "${missing[@]}" || give_up "apt could not install ${missing[*]}" "See $apt_log; then install them and run make setup again."
    done_step "installed ${missing[*]}"
  else
    done_step "missing ${missing[*]}: set-up goes on, but emulated regions and tests need them (install as root)"
  fi
}

can_apt() {
  [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null
}

apt_log=/tmp/prfaas-setup-apt.log

# Install without questions, refresh the lists only if they turn out too old, and start no service.
apt_install() {
  note "installing $* with apt"
  local policy=/usr/sbin/policy-rc.d pair new_services=()
  for pair in etcd:etcd sshd:ssh nft:nftables promtool:prometheus; do
    have "${pair%%:*}" || new_services+=("${pair##*:}")
  done
  if [[ ! -e $policy ]]; then
    trap 'rm -f /usr/sbin/policy-rc.d' EXIT
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
  fi
  : >"$apt_log"
  run_apt install "$@" || { run_apt update && run_apt install "$@"; } || return 1
  if ((${#new_services[@]} > 0)) && command -v systemctl >/dev/null; then
    systemctl disable "${new_services[@]}" >>"$apt_log" 2>&1 || true
  fi
}

run_apt() {
  DEBIAN_FRONTEND=noninteractive apt-get -y -q --no-install-recommends "$@" >>"$apt_log" 2>&1 </dev/null
}
