# A function for awk: the median of list[1] to list[n], which it sorts. To be sourced.
# shellcheck shell=sh disable=SC2016,SC2034 # it is awk's, and who sources this uses it
median='function median(list, n,    i, j, t) {
    for (i = 2; i <= n; i++)
        for (j = i; j > 1 && list[j - 1] > list[j]; j--) { t = list[j]; list[j] = list[j - 1]; list[j - 1] = t }
    return n % 2 ? list[(n + 1) / 2] : (list[n / 2] + list[n / 2 + 1]) / 2
}
'
